package spool

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate gives every byte of the file up to size a place on the disk, and leaves what is written alone.
func allocate(file *os.File, from, size int64) error {
	for {
		err := unix.Fallocate(int(file.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP):
			return writeZeros(file, from, size)
		}
		return err
	}
}
