package perconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hoplog/hoplog/gateway/eventloop"
	"github.com/hoplog/hoplog/gateway/h2"
	"github.com/hoplog/hoplog/gateway/proxyproto"
)

// Config is what a server needs. All of it must be set, but for Proxies, TLS and HTTP2.
type Config struct {
	Handler        eventloop.Handler
	Logger         *slog.Logger
	MaxConnections int           // more are turned away
	RequestTimeout time.Duration // for a whole request, from its first byte on; on a new connection, from the connection on
	WriteTimeout   time.Duration // for the client to take the answers to one read
	IdleTimeout    time.Duration // between requests
	// Proxies are the networks whose connections begin with a PROXY header, always. All others are who they seem to be.
	Proxies []netip.Prefix
	// TLS is nil for a server of plain connections.
	TLS *tls.Config
	// HTTP2 answers where clients chose h2 in their handshake; nil: TLS must not offer it.
	HTTP2 h2.Handler
}

const (
	// maxTurnedAway is how many connections above MaxConnections are given a handshake, to be told that they are too many.
	maxTurnedAway = 64
	turnAwayFor   = 2 * time.Second
	acceptPause   = 50 * time.Millisecond // when the system has no room for another connection
	complainEvery = time.Minute           // about that

	keptBytes = 64 << 20 // of heads beyond readBytes, of heads whose bodies are coming, of answers beyond pageBytes: all connections together
)

// Server serves one listener.
type Server struct {
	config   Config
	open     atomic.Int64 // connections
	kept     atomic.Int64 // bytes, at most keptBytes
	counts   eventloop.Counts
	draining atomic.Bool
	running  sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil before Serve
	conns    map[*conn]struct{}
}

// New makes a server. Serve starts it.
func New(config Config) (*Server, error) {
	if config.Handler == nil || config.Logger == nil || config.MaxConnections < 1 || min(config.RequestTimeout, config.WriteTimeout, config.IdleTimeout) <= 0 {
		return nil, errors.New("perconn: a setting is missing")
	}
	return &Server{config: config, conns: map[*conn]struct{}{}}, nil
}

// Serve answers on the listener until Shutdown, or until the listener fails. It takes over the listener and may be called once.
func (s *Server) Serve(ln net.Listener) error {
	if len(s.config.Proxies) > 0 {
		ln = proxyproto.NewListener(ln, s.config.Proxies, s.config.RequestTimeout)
	}
	s.mu.Lock()
	s.listener = ln
	s.mu.Unlock()
	defer func() { _ = ln.Close() }()
	var complained time.Time
	for !s.draining.Load() {
		c, err := ln.Accept()
		switch {
		case err == nil:
			s.admit(c)
		case s.draining.Load():
		case errors.Is(err, syscall.ECONNABORTED): // gone before we came to it
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
			if time.Since(complained) >= complainEvery {
				complained = time.Now()
				s.config.Logger.Error("no more connections can be accepted", "error", err)
			}
			time.Sleep(acceptPause)
		default:
			return fmt.Errorf("accepting: %w", err)
		}
	}
	s.running.Wait()
	return nil
}

// Stats returns what happened to connections since the start.
func (s *Server) Stats() eventloop.Stats { return s.counts.Stats(s.open.Load()) }

// IsTLS reports whether this is a server of TLS.
func (s *Server) IsTLS() bool { return s.config.TLS != nil }

// admit begins to serve a connection. One that is too many is told so, and one that is far too many is closed.
func (s *Server) admit(raw net.Conn) {
	c := &conn{server: s, raw: &counted{Conn: raw, open: &s.open}}
	n := s.open.Add(1)
	c.busy = n > int64(s.config.MaxConnections)
	if n > int64(s.config.MaxConnections)+maxTurnedAway || !s.keep(c) {
		s.counts.End(eventloop.ErrBusy)
		_ = c.raw.Close()
		return
	}
	if !c.busy {
		s.counts.Accept()
	}
	go func() {
		defer s.running.Done()
		defer s.forget(c)
		c.serve()
	}()
}

// keep remembers a connection. False: the server drains.
func (s *Server) keep(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return false
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	return true
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Shutdown takes no more connections, ends idle ones and waits for the requests under way; when ctx is done first, it ends
// those too and returns ctx's error. It may come before Serve, which then ends at once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for c := range s.conns {
		if c.state.CompareAndSwap(stateIdle, stateClosed) {
			_ = c.raw.Close()
		} else if c.state.Load() == stateHTTP2 {
			_ = c.raw.SetReadDeadline(time.Unix(1, 0)) // it says good-bye
		}
	}
	s.mu.Unlock()
	drained := make(chan struct{})
	go func() {
		s.running.Wait()
		close(drained)
	}()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.raw.Close()
	}
	s.mu.Unlock()
	<-drained
	return ctx.Err()
}

// counted is a connection that takes itself off the count when it is closed.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

// Close ends the connection.
func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
