package app

import "testing"

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
