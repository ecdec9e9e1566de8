// Package enginetest starts real embedded engines in tests. A package that uses it calls [Main] in its TestMain, since
// the engine's process is the test binary itself.
//
// It must only be imported by tests.
package enginetest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/hoplog/hoplog/readmodels/clicks/engine"
)

// LibraryVariable names the library to test with; without it <module root>/bin/libchdb.so is used.
const LibraryVariable = "HOPLOG_CHDB"

// Main runs the tests, or the engine when this process is an engine's.
func Main(m *testing.M) {
	if engine.IsChild() {
		os.Exit(engine.Main())
	}
	os.Exit(m.Run())
}

// Library is the path of libchdb.so; without one the test is skipped, loudly.
func Library(t testing.TB) string {
	t.Helper()
	path := os.Getenv(LibraryVariable)
	if path == "" {
		path = filepath.Join(moduleRoot(t), "bin", engine.LibraryName)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: no ClickHouse engine at %s; run `make engine`, or set %s", path, LibraryVariable)
	}
	return path
}

// Options for an engine on a free port, run by this test binary.
func Options(t testing.TB, dir string) engine.Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return engine.Options{Lib: Library(t), DataDir: dir, Addr: "127.0.0.1:0", Command: []string{exe}}
}

// Start starts an engine on dir that is stopped when the test ends.
func Start(t testing.TB, dir string) *engine.Child {
	t.Helper()
	return StartWith(t, Options(t, dir))
}

// StartWith is Start with options of one's own (see [Options]).
func StartWith(t testing.TB, o engine.Options) *engine.Child {
	t.Helper()
	c, err := engine.Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}
