package eventloop

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of the hot path do not tell the Go scheduler: none of them can block, and telling it costs as much as parsing a
// request. Only the wait for events may block, and does tell it.

// received reads from a socket into b, which is not empty.
func received(fd int32, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}

// sent writes b, which is not empty, to a socket. A connection that is gone is an error and no signal.
func sent(fd int32, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), syscall.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// event is the kernel's epoll_event as package unix has it.
type event = unix.EpollEvent

// shortWait is for how many milliseconds a loop waits without telling the Go scheduler. Under load the next event comes
// sooner, and a loop that gave its processor away would have to get it back from goroutines that do not yield for
// milliseconds. The runtime stops such a wait with a signal when it has to stop the world.
const shortWait = 1

// wait fills events. A timeout of 0 milliseconds does not wait, a negative one waits for ever.
func wait(epoll int, events []event, timeout int) (int, syscall.Errno) {
	short := shortWait
	if timeout == 0 {
		short = 0
	}
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(short), 0, 0)
	if n == 0 && errno == 0 && timeout != 0 && timeout != short {
		n, _, errno = syscall.Syscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(timeout), 0, 0)
	}
	return int(n), errno
}

// addressOf returns whose the other end of a connection is, invalid for what is no IP socket.
func addressOf(from unix.Sockaddr) netip.Addr {
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr).Unmap()
	}
	return netip.Addr{}
}

// closeFD closes a descriptor of ours: there is nothing to do about an error.
func closeFD(fd int) { _ = unix.Close(fd) }
