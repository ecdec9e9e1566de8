package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrNoRoom says that nothing may be written: the disk is full up to its reserve, or read-only.
	ErrNoRoom = errors.New("nothing can be written")
	// ErrReadOnly is the ErrNoRoom of a read-only file system.
	ErrReadOnly = errors.New("the file system is read-only")
)

// Guard watches the file system of a directory. Who writes asks it first, so that the log and the stores never meet a full
// disk: what they have acknowledged they can also keep, merge and close. When there is room again, writing goes on.
type Guard struct {
	dir     string
	reserve uint64
	logger  *slog.Logger
	full    atomic.Pointer[error]
	free    atomic.Uint64
}

// The default reserve is a fiftieth of the file system within these bounds: what the stores may still want to write of what
// they hold in memory.
const (
	reserveShare = 50
	minReserve   = 64 << 20
	maxReserve   = 512 << 20
	// resumeShare: writing goes on when a fourth more than the reserve is free, so that it does not flutter.
	resumeShare = 4
	guardPoll   = 100 * time.Millisecond
)

// room is what a file system has.
type room struct {
	size, free uint64 // bytes; free: for unprivileged users
	readOnly   bool
}

// NewGuard looks once at the directory, which must exist. reserve 0 is the default. Run keeps looking.
func NewGuard(dir string, reserve uint64, logger *slog.Logger) (*Guard, error) {
	found, err := roomOf(dir)
	if err != nil {
		return nil, fmt.Errorf("asking for room on the disk of %s: %w", dir, err)
	}
	if reserve == 0 {
		reserve = min(max(found.size/reserveShare, minReserve), maxReserve)
	}
	g := &Guard{dir: dir, reserve: reserve, logger: logger}
	g.judge(found)
	return g, nil
}

// Run watches until ctx is done.
func (g *Guard) Run(ctx context.Context) {
	tick := time.NewTicker(guardPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if found, err := roomOf(g.dir); err == nil { // a disk that cannot be asked is not full for that
				g.judge(found)
			}
		}
	}
}

// Full returns why nothing may be written, an ErrNoRoom; nil when there is room. It takes no lock.
func (g *Guard) Full() error {
	if why := g.full.Load(); why != nil {
		return *why
	}
	return nil
}

// Free returns the bytes that were free when the guard last looked.
func (g *Guard) Free() uint64 { return g.free.Load() }

// Reserve returns how many bytes are kept free.
func (g *Guard) Reserve() uint64 { return g.reserve }

func (g *Guard) judge(found room) {
	g.free.Store(found.free)
	was := g.full.Load()
	limit := g.reserve
	if was != nil {
		limit += g.reserve / resumeShare
	}
	var why error
	switch {
	case found.readOnly:
		why = fmt.Errorf("%w to %s: %w", ErrNoRoom, g.dir, ErrReadOnly)
	case found.free < limit:
		why = fmt.Errorf("%w: the disk is full: %s has %d MiB left, and %d MiB are kept in reserve", ErrNoRoom, g.dir, found.free>>20, g.reserve>>20)
	}
	switch {
	case why == nil && was != nil:
		g.full.Store(nil)
		g.logger.Info("there is room on the disk again", "dir", g.dir, "free", found.free)
	case why != nil:
		g.full.Store(&why)
		if was == nil {
			g.logger.Error("writes are refused until there is room", "error", why)
		}
	}
}
