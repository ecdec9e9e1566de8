package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// How long Serve waits when it stops: for queries to end by themselves, and then for them to end after a kill.
const (
	drainTime = 3 * time.Second
	killTime  = 2 * time.Second
)

// Serve opens the data directory and serves it until ctx ends, then drains and closes it. It can be called once per
// process. ready is called when queries are answered. Errors wrap [ErrLocked], [ErrAddrInUse] or [ErrOpen] where one
// fits.
//
// Order: lock, then address (both may have to wait for an engine that is still dying), then the library. Stopping: no
// new requests, queries get drainTime, then readers are killed, then the engine writes what is open.
func Serve(ctx context.Context, o Options, ready func(addr, version string)) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	lock, err := lockDirectory(ctx, o.DataDir, o.Wait)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }() // the process ends with it in any case
	listener, err := listen(ctx, o.Addr, o.Wait)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // closed by the server already, but for early returns
	db, err := openEngine(o)
	if err != nil {
		return err
	}
	o.Addr = listener.Addr().String()
	ready(o.Addr, db.version)
	err = serveHTTP(ctx, o, db, listener)
	return errors.Join(err, db.close(killTime))
}

func openEngine(o Options) (*database, error) {
	config, err := writeConfig(o)
	if err != nil {
		return nil, err
	}
	lib, err := loadLibrary(o.Lib)
	if err != nil {
		return nil, err
	}
	return openDatabase(lib, o.DataDir, config, o.MaxQueries)
}

func serveHTTP(ctx context.Context, o Options, db *database, listener net.Listener) error {
	queries, killQueries := context.WithCancel(context.WithoutCancel(ctx))
	defer killQueries()
	server := &http.Server{
		Handler:           &handler{db: db, opt: o},
		BaseContext:       func(net.Listener) context.Context { return queries },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 20,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving clickhouse engine: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(queries, drainTime)
	defer cancel()
	if server.Shutdown(drain) == nil {
		return nil
	}
	killQueries()
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	_ = server.Shutdown(kill) // what still runs now is met by database.close
	return nil
}

// retry calls try until it succeeds, fails otherwise than with busy, or wait is over.
func retry(ctx context.Context, wait time.Duration, busy error, try func() error) error {
	deadline := time.Now().Add(wait)
	for {
		err := try()
		if err == nil || !errors.Is(err, busy) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func lockDirectory(ctx context.Context, dir string, wait time.Duration) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating data directory: %w", err)
	}
	lock := flock.New(filepath.Join(dir, "engine.lock"))
	err := retry(ctx, wait, ErrLocked, func() error {
		ok, err := lock.TryLock()
		if err == nil && !ok {
			err = fmt.Errorf("%w: %s", ErrLocked, dir)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("locking data directory: %w", err)
	}
	return lock, nil
}

func listen(ctx context.Context, addr string, wait time.Duration) (l net.Listener, err error) {
	err = retry(ctx, wait, ErrAddrInUse, func() error {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: %s", ErrAddrInUse, addr)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return l, nil
}
