package bench

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Disk is what one durable write costs on the file system of the data: 4 KiB appended and synced, one after the other.
type Disk struct {
	PerSecond float64 `json:"per_second"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
}

const (
	diskFor   = 1500 * time.Millisecond
	diskBlock = 4 << 10
)

// measureDisk appends and syncs in a file of its own in dir.
func measureDisk(dir string) (_ Disk, err error) {
	file, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return Disk{}, fmt.Errorf("measuring the disk: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	block := make([]byte, diskBlock)
	_, _ = rand.Read(block) // never fails
	var took Histogram
	began := time.Now()
	for time.Since(began) < diskFor {
		from := time.Now()
		_, err := file.Write(block)
		if err = errors.Join(err, file.Sync()); err != nil {
			return Disk{}, fmt.Errorf("measuring the disk: %w", err)
		}
		took.Add(time.Since(from))
	}
	return Disk{per(float64(took.Count()), time.Since(began).Seconds()), ms(took.Quantile(0.5)), ms(took.Quantile(0.99))}, nil
}
