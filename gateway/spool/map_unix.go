//go:build unix

package spool

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapShared(file *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// mapPrivate reserves memory that takes room only once it is touched, and that the collector need not know of.
func mapPrivate(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func syncMap(memory []byte) error { return unix.Msync(memory, unix.MS_SYNC) }

func unmap(memory []byte) error { return unix.Munmap(memory) }
