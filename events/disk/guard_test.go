package disk

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// The guard says full below the reserve, and not before a fourth more is free that there is room again.
func TestGuardJudges(t *testing.T) {
	g := &Guard{dir: "/data", reserve: 100 << 20, logger: slog.New(slog.DiscardHandler)}
	for i, c := range []struct {
		room room
		want string // "": there is room
	}{
		{room{free: 101 << 20}, ""},
		{room{free: 100<<20 - 1}, "has 99 MiB left, and 100 MiB are kept in reserve"},
		{room{free: 110 << 20}, "disk is full"},
		{room{free: 125 << 20}, ""},
		{room{free: 110 << 20}, ""},
		{room{free: 110 << 20, readOnly: true}, "to /data: the file system is read-only"},
		{room{free: 130 << 20}, ""},
	} {
		g.judge(c.room)
		err := g.Full()
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("step %d: %v, want %q", i, err, c.want)
		}
	}
}

func TestGuardLooksAtTheDisk(t *testing.T) {
	g, err := NewGuard(t.TempDir(), 1, slog.New(slog.DiscardHandler))
	if err != nil || g.Free() == 0 || g.Full() != nil {
		t.Errorf("of a disk with room: %v, %d free, %v", err, g.Free(), g.Full())
	}
	if _, err := NewGuard("/no/such/directory", 0, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a directory that is not there has room")
	}
}
