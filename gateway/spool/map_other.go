//go:build !unix

package spool

import (
	"errors"
	"os"
)

// Without mapped files the clicks wait in memory.
func mapShared(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func mapPrivate(size int) ([]byte, error) { return make([]byte, size), nil }

func syncMap([]byte) error { return nil }

func unmap([]byte) error { return nil }
