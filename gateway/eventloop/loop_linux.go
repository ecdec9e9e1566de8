package eventloop

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hoplog/hoplog/gateway/http1"
)

const (
	readBytes  = 32 << 10    // of one read; more than a head and its proxy's header
	writeBytes = 64 << 10    // of answers that are gathered before they are written
	heldBytes  = 64 << 20    // of answers that wait for slow readers, in one loop
	maxEvents  = 128         // of one wait
	maxReads   = 4           // of one connection in a row
	lingerFor  = time.Second // after an answer that ends the connection while the client may still be sending
)

// loop serves the connections that belong to it.
type loop struct {
	server   *Server
	config   *Config
	epoll    int
	listener int // -1: not listened to
	mail     mail
	load     atomic.Int64 // connections, for the other loops

	conns  []*conn // by descriptor
	again  []*conn // have, or may have, more to read
	handed []*job  // for the workers
	held   int     // bytes of answers that wait
	timer  wheel
	began  time.Time
	now    time.Duration // since began, as of the last wait

	draining, stopped bool
	paused            bool // accepting is, until the next tick

	request http1.Request
	in      []byte // what is read
	data    []byte // what is not answered of it
	out     []byte // answers
	events  [maxEvents]event
}

func newLoop(s *Server, listener int) (*loop, error) {
	l := &loop{server: s, config: &s.config, listener: -1, began: time.Now(), in: make([]byte, readBytes), out: make([]byte, 0, 2*writeBytes)}
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making an epoll: %w", err)
	}
	if err = l.mail.open(); err == nil {
		err = l.watch(l.mail.fd, unix.EPOLLIN)
	}
	if err == nil {
		err = l.listen(listener)
	}
	if err != nil {
		l.free()
		return nil, fmt.Errorf("making an event loop: %w", err)
	}
	l.timer.init(min(s.config.RequestTimeout, s.config.WriteTimeout, s.config.IdleTimeout))
	return l, nil
}

func (l *loop) watch(fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event{Events: events, Fd: int32(fd)})
}

// listen makes this one of the loops that new connections wake, one at a time.
func (l *loop) listen(fd int) error {
	if err := l.watch(fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE); err != nil {
		return err
	}
	l.listener = fd
	return nil
}

func (l *loop) deaf() {
	if l.listener >= 0 {
		_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, l.listener, nil)
		l.listener = -1
	}
}

// free closes the loop's own descriptors.
func (l *loop) free() {
	closeFD(l.epoll)
	l.mail.close()
}

// run serves until the loop is stopped, or drained and without connections.
func (l *loop) run() error {
	runtime.LockOSThread()
	ShortSlice()
	defer runtime.UnlockOSThread()
	defer l.end()
	for !l.stopped && (!l.draining || l.load.Load() > 0) {
		n, errno := wait(l.epoll, l.events[:], l.timeout())
		if errno != 0 && errno != syscall.EINTR {
			return fmt.Errorf("waiting for events: %w", errno)
		}
		l.now = time.Since(l.began)
		if errno == 0 {
			for i := range n {
				l.dispatch(l.events[i])
			}
		}
		l.readAgain()
		l.tick()
		l.deliver()
	}
	return nil
}

// timeout is how long the next wait may take, in milliseconds.
func (l *loop) timeout() int {
	if len(l.again) > 0 {
		return 0
	}
	if l.load.Load() == 0 && !l.paused {
		return -1
	}
	return max(1, int((l.timer.next-l.now)/time.Millisecond)+1)
}

func (l *loop) dispatch(e event) {
	switch {
	case e.Fd == int32(l.mail.fd):
		l.readMail()
	case int(e.Fd) == l.listener:
		l.accept()
	case int(e.Fd) < len(l.conns) && l.conns[e.Fd] != nil:
		l.ready(l.conns[e.Fd], e.Events)
	}
}

// readAgain goes on with connections that had more to read than was their turn.
func (l *loop) readAgain() {
	again := l.again
	l.again = nil
	for _, c := range again {
		if l.isOpen(c) && c.again {
			c.again = false
			l.ready(c, unix.EPOLLIN|unix.EPOLLRDHUP) // to the end: no event will tell
		}
	}
	if l.again == nil {
		l.again = again[:0]
	}
}

// tick strikes the deadlines that have passed.
func (l *loop) tick() {
	if l.now < l.timer.next {
		return
	}
	if l.paused {
		l.paused = false
		l.resumeAccepting()
	}
	l.timer.advance(l.now, l.expire)
}

// end closes what is left.
func (l *loop) end() {
	for _, c := range l.conns {
		if c != nil {
			l.close(c)
		}
	}
	l.deaf()
	l.mail.shut() // a worker may still have an answer for us
	closeFD(l.epoll)
}
