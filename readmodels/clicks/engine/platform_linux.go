package engine

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childAttributes: the kernel kills the child when the thread that started it ends (see [Child]), and the child has a
// process group of its own, so that Ctrl-C reaches the parent, which then stops the child in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// behind is how far the engine's work stands back: a tenth of what the same process would get beside others that want the
// processor too.
const behind = 10

// yield makes all threads of this process, and those that they will start, stand back behind other processes. Who shares a
// machine with the engine, redirects before all, answers somebody who waits; a report that is a second later says so.
func yield() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, behind)
		}
	}
}

func totalMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// memoryFile is a file without a name that the engine, in this same process, can open by the returned path.
func memoryFile() (*os.File, string, error) {
	fd, err := unix.MemfdCreate("insert", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, "", fmt.Errorf("creating memory file: %w", err)
	}
	return os.NewFile(uintptr(fd), "insert"), fmt.Sprintf("/proc/self/fd/%d", fd), nil
}

// signalActions are the kernel's records for all signals, opaque to us.
type signalActions [65][4]uint64

// saveSignals and restoreSignals bracket calls into the library that put some handlers to their defaults (its way of
// "install none"): the Go runtime needs its own back. The system call is used as there is no such function in
// package syscall, and libc's would hide two signals from us.
func saveSignals() *signalActions {
	var saved signalActions
	for sig := 1; sig < len(saved); sig++ {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&saved[sig])), 8, 0, 0)
	}
	return &saved
}

func restoreSignals(saved *signalActions) {
	for sig := 1; sig < len(saved); sig++ {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&saved[sig])), 0, 8, 0, 0)
	}
}
