package app

import (
	"net"
	"testing"
	"time"
)

func TestConnectionsLeaveDescriptors(t *testing.T) {
	for _, n := range []uint64{1, 2, 20, 256, 1024, 4096, 20_000, 65_536, 1 << 20, 1 << 40} {
		redirects, alone, api := connections(n, 2), connections(n, 1), apiConnections(n)
		if redirects < 1 || api < 1 || redirects > alone || alone > mostConnections {
			t.Errorf("%d descriptors: %d, %d and %d connections", n, redirects, alone, api)
		}
		if taken := uint64(max(2*redirects, alone) + api); n >= 20 && taken > n-min(ownDescriptors, n/2) {
			t.Errorf("%d descriptors: %d for connections", n, taken)
		}
	}
	if n := connections(0, 2); n != mostConnections {
		t.Errorf("%d where nothing is known", n)
	}
	if descriptors() == 0 {
		t.Skip("this system does not tell")
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := limitConnections(inner, 2)
	accepted := make(chan net.Conn, 3)
	ended := make(chan struct{})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				close(ended)
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	first, second := <-accepted, <-accepted
	defer second.Close()
	if _, ok := first.(interface{ CloseWrite() error }); !ok {
		t.Error("a connection cannot be closed one side at a time")
	}
	select {
	case <-accepted:
		t.Error("three at once")
	case <-time.After(50 * time.Millisecond):
	}
	for range 2 { // a second close frees no second place
		_ = first.Close()
	}
	third := <-accepted
	defer third.Close()
	_ = ln.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("still accepting")
	}
}
