package eventloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Config is what a server needs. All of it must be set, but for Loops and Proxies.
type Config struct {
	Handler        Handler
	Logger         *slog.Logger
	Loops          int           // default: half the processors
	Workers        int           // that answer what would make a loop wait
	MaxConnections int           // more are turned away
	RequestTimeout time.Duration // for a whole request, from its first byte on; on a new connection, from the connection on
	WriteTimeout   time.Duration // for the client to take the answers to one read
	IdleTimeout    time.Duration // between requests
	// Proxies are the networks whose connections begin with a PROXY header, always. All others are who they seem to be.
	Proxies []netip.Prefix
}

// Server is a set of loops on one listener.
type Server struct {
	config    Config
	open      atomic.Int64
	counts    Counts
	loops     []*loop
	errands   chan errand
	waiting   atomic.Int64   // jobs that are not done
	delivered sync.WaitGroup // those of them that the workers have
	running   sync.WaitGroup // loops
	ended     chan struct{}  // all loops have ended

	mu        sync.Mutex
	down      bool
	listening bool
	listener  int
}

// New makes a server. Serve starts it.
func New(config Config) (*Server, error) {
	if config.Loops == 0 {
		// One loop does the work of a core: the kernel's part of a connection and all else that a process does need the others.
		config.Loops = max(1, processors.own()/2)
	}
	if config.Handler == nil || config.Logger == nil || config.Loops < 1 || config.Workers < 1 || config.MaxConnections < 1 ||
		min(config.RequestTimeout, config.WriteTimeout, config.IdleTimeout) <= 0 {
		return nil, errors.New("eventloop: a setting is missing")
	}
	return &Server{config: config, errands: make(chan errand, maxJobs), ended: make(chan struct{})}, nil
}

// Connections returns how many connections there are.
func (s *Server) Connections() int { return int(s.open.Load()) }

// Stats returns what happened to connections since the start.
func (s *Server) Stats() Stats {
	return s.counts.Stats(s.open.Load())
}

// Serve answers on the listener until Shutdown, or until a loop fails. It takes over the listener and may be called once.
func (s *Server) Serve(ln net.Listener) error {
	defer func() { _ = ln.Close() }()
	listener, err := descriptorOf(ln)
	if err != nil {
		return err
	}
	defer s.forget(listener) // after the loops, which listen on it, have ended
	failed := make(chan error, s.config.Loops)
	started, err := s.start(listener, failed)
	if err != nil || !started {
		return err
	}
	// A loop under load keeps its processor of the Go scheduler. The other goroutines keep as many as they had.
	processors.add(s.config.Loops)
	defer processors.add(-s.config.Loops)
	workers := s.startWorkers()
	defer workers()
	go func() {
		s.running.Wait()
		close(s.ended)
	}()
	select {
	case <-s.ended:
		return nil
	case err := <-failed:
		s.tell(func(m *mail) { m.drain, m.stop = true, true })
		<-s.ended
		return err
	}
}

func (s *Server) forget(listener int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = false
	closeFD(listener)
}

// descriptorOf returns a copy of a listener's descriptor, which does not block, as the original does not. (The one that File
// returns would block both.)
func descriptorOf(ln net.Listener) (fd int, err error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return -1, fmt.Errorf("eventloop: a listener of type %T", ln)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("taking over the listener: %w", err)
	}
	var copied error
	if err = raw.Control(func(own uintptr) { fd, copied = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); err == nil {
		err = copied
	}
	if err != nil {
		return -1, fmt.Errorf("taking over the listener: %w", err)
	}
	return fd, nil
}

// start makes and starts the loops. False: the server was shut down before.
func (s *Server) start(listener int, failed chan<- error) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return false, nil
	}
	s.listening, s.listener = true, listener
	for range s.config.Loops {
		l, err := newLoop(s, listener)
		if err != nil {
			for _, made := range s.loops {
				made.free()
			}
			s.loops = nil
			return false, err
		}
		s.loops = append(s.loops, l)
	}
	for _, l := range s.loops {
		s.running.Go(func() {
			if err := l.run(); err != nil {
				failed <- err
			}
		})
	}
	return true, nil
}

// Shutdown takes no more connections, ends idle ones and waits for the requests under way; when ctx is done first, it ends
// those too and returns ctx's error. It may come before Serve, which then ends at once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.down = true
	running := s.listening
	if running {
		_ = unix.Shutdown(s.listener, unix.SHUT_RD) // closing is not enough: there are copies
	}
	s.mu.Unlock()
	if !running {
		return nil
	}
	s.tell(func(m *mail) { m.drain = true })
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
	}
	s.tell(func(m *mail) { m.stop = true })
	<-s.ended
	return ctx.Err()
}

func (s *Server) tell(what func(*mail)) {
	for _, l := range s.loops {
		l.mail.send(what)
	}
}

// leastBusy returns the loop with the fewest connections.
func (s *Server) leastBusy() *loop {
	best := s.loops[0]
	for _, l := range s.loops[1:] {
		if l.load.Load() < best.load.Load() {
			best = l
		}
	}
	return best
}
