//go:build race

package disk_test

func init() { raced = true }
