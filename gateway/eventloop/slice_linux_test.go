package eventloop

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestShortSliceKeepsThePriority(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Skip("SKIPPED: this kernel tells nothing about a thread's turns:", err)
	}
	ShortSlice()
	after, err := unix.SchedGetAttr(0, 0)
	if err != nil || after.Nice != before.Nice || after.Policy != before.Policy {
		t.Fatalf("was %+v, is %+v: %v", before, after, err)
	}
	if before.Runtime == 0 {
		t.Skip("SKIPPED: this kernel (before Linux 6.12) takes no slice")
	}
	if after.Runtime != uint64(slice) {
		t.Errorf("a slice of %d ns", after.Runtime)
	}
}
