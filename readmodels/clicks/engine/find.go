package engine

import (
	"fmt"
	"os"
	"path/filepath"
)

// LibraryName is the file name of the engine.
const LibraryName = "libchdb.so"

// Find returns the absolute path of the engine's library: the explicit path if one is given, else libchdb.so next to this
// executable, else bin/libchdb.so below the working directory. The error wraps [ErrNoEngine].
func Find(explicit string) (string, error) {
	candidates := []string{explicit}
	if explicit == "" {
		candidates = []string{filepath.Join("bin", LibraryName)}
		if exe, err := os.Executable(); err == nil {
			candidates = []string{filepath.Join(filepath.Dir(exe), LibraryName), candidates[0]}
		}
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("%w (looked at %q)", ErrNoEngine, candidates)
}
