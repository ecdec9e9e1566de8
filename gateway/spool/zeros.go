package spool

import "os"

// writeZeros fills the file from its present end. It is for file systems that cannot allocate.
func writeZeros(file *os.File, from, size int64) error {
	var zeros [64 << 10]byte
	for from < size {
		n, err := file.WriteAt(zeros[:min(int64(len(zeros)), size-from)], from)
		if err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}
