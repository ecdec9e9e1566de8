//go:build !linux

package engine

import (
	"os"
	"syscall"
)

func childAttributes() *syscall.SysProcAttr { return nil }

func yield() {}

func totalMemory() int64 { return 0 }

func memoryFile() (*os.File, string, error) {
	f, err := os.CreateTemp("", "hoplog-insert-")
	if err != nil {
		return nil, "", err
	}
	return f, f.Name(), nil
}

type signalActions struct{}

func saveSignals() *signalActions { return &signalActions{} }

func restoreSignals(*signalActions) {}
