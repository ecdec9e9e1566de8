package bench

import (
	"syscall"
	"time"
)

// diesWithUs makes a child get a signal when this process ends, however it ends.
func diesWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}

// cpuOfSelf is what this process has used: the load, and what runs beside it in here.
func cpuOfSelf() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
