package eventloop

import (
	"time"

	"golang.org/x/sys/unix"
)

// slice is how long a loop may run before the kernel looks whether another thread should: the least that there is. Linux (from
// 6.12 on) lets a thread with a short slice run as soon as it wakes, before those with the usual three milliseconds that work
// on something long, and gives it no more of the processor for it.
const slice = 100 * time.Microsecond

// ShortSlice asks the kernel for short turns of this thread, which must be locked to its goroutine. Older kernels take no
// notice, and a system that forbids it loses nothing but a little latency under load.
func ShortSlice() {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return
	}
	attr.Runtime = uint64(slice)
	_ = unix.SchedSetAttr(0, attr, 0)
}
