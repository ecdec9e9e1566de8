// Package loopback finds addresses for what tests start, kill and start again in the same place.
//
// Invariant: the port lies below those that the system gives to outgoing connections (from 32768 on Linux), so none of these
// takes it while its owner is down; nor can a client that knocks there meanwhile be connected with itself. It imports nothing of this module.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreeAddr returns an address of 127.0.0.1 on which nobody listened a moment ago.
func FreeAddr(t testing.TB) string { return fmt.Sprintf("127.0.0.1:%d", FreePort(t)) }

// FreePort returns a port of 127.0.0.1 on which nobody listened a moment ago.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(22_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}
