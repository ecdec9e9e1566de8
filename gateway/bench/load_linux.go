package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hoplog/hoplog/gateway/eventloop"
)

// run sends the load from one thread with epoll: a goroutine per connection would cost more than what is measured.
func (l *load) run(ctx context.Context) (*loaded, error) {
	g, err := l.prepare()
	if err != nil {
		return nil, err
	}
	defer g.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	eventloop.ShortSlice() // who measures how long an answer takes shall not be late itself
	return g.loaded, g.run(ctx)
}

// generator is a load under way.
type generator struct {
	*load
	*loaded
	epoll, timer int
	began        time.Time
	connected    []connection
	idle         []int // connections without a request, of a load with a rate
	due          []time.Time
	dues         int // requests that were due so far
	open         int // requests without an answer
	chunks       []byte
	told         time.Time
}

type connection struct {
	fd     int
	asking bool
	since  time.Time // of the request: when it was sent, or when it was due
	out    []byte    // the request
	in     []byte    // what came of the answer
}

const timerEvent = -1

func (l *load) prepare() (_ *generator, err error) {
	g := &generator{load: l, timer: -1, loaded: &loaded{span: l.during, rates: make([]float64, l.during/loadSlice)}, connected: make([]connection, l.connections)}
	for i := range g.connected {
		g.connected[i].fd = -1
	}
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making an epoll: %w", err)
	}
	for i := range g.connected {
		if err := g.connect(i); err != nil {
			g.close()
			return nil, err
		}
	}
	if l.rate > 0 {
		if err := g.startTimer(); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

func (g *generator) close() {
	for _, c := range g.connected {
		if c.fd >= 0 {
			_ = unix.Close(c.fd)
		}
	}
	if g.timer >= 0 {
		_ = unix.Close(g.timer)
	}
	_ = unix.Close(g.epoll)
}

func (g *generator) connect(i int) error {
	to, err := net.ResolveTCPAddr("tcp", g.addr)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", g.addr, err)
	}
	family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: to.Port, Addr: [16]byte(to.IP.To16())})
	if ip := to.IP.To4(); ip != nil {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(ip)}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("making a socket: %w", err)
	}
	c := &g.connected[i]
	c.fd, c.in = fd, c.in[:0]
	err = errors.Join(unix.Connect(fd, at), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetNonblock(fd, true),
		unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}))
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", g.addr, err)
	}
	return nil
}

func (g *generator) startTimer() (err error) {
	if g.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("making a timer: %w", err)
	}
	step := unix.NsecToTimespec(g.step().Nanoseconds())
	if err := unix.TimerfdSettime(g.timer, 0, &unix.ItimerSpec{Interval: step, Value: step}, nil); err != nil {
		return fmt.Errorf("setting a timer: %w", err)
	}
	return unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, g.timer, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: timerEvent})
}

// step is the time between two requests that are due.
func (g *generator) step() time.Duration { return time.Duration(float64(time.Second) / g.rate) }

func (g *generator) run(ctx context.Context) error {
	g.began = time.Now()
	for i := range g.connected {
		if g.rate > 0 {
			g.idle = append(g.idle, i)
		} else if err := g.ask(i, g.began); err != nil {
			return err
		}
	}
	events := make([]unix.EpollEvent, len(g.connected)+1)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := time.Now()
		since := now.Sub(g.began)
		if since >= g.during && (g.open+len(g.due) == 0 || since >= g.during+loadPatience) {
			g.giveUp()
			return nil
		}
		g.report(now)
		n, err := unix.EpollWait(g.epoll, events, int(loadSlice/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for answers: %w", err)
		}
		for _, event := range events[:max(n, 0)] {
			if event.Fd == timerEvent {
				err = g.tick()
			} else {
				err = g.receive(int(event.Fd))
			}
			if err != nil {
				return err
			}
		}
	}
}

func (g *generator) report(now time.Time) {
	if g.tell != nil && now.Sub(g.told) >= loadSlice {
		g.told = now
		g.tell(now.Sub(g.began))
	}
}

// giveUp counts what was never answered.
func (g *generator) giveUp() {
	if g.open+len(g.due) > 0 {
		g.wrong += g.open + len(g.due)
		g.blame(fmt.Sprintf("%d requests without an answer", g.open+len(g.due)))
	}
}

// tick notes the requests that became due, and sends those for which there is a connection.
func (g *generator) tick() error {
	var count [8]byte
	if n, _ := unix.Read(g.timer, count[:]); n < len(count) {
		return nil // it was not due
	}
	for range binary.NativeEndian.Uint64(count[:]) {
		g.dues++
		if due := g.began.Add(time.Duration(g.dues) * g.step()); due.Sub(g.began) < g.during {
			g.due = append(g.due, due)
		}
	}
	return g.serveDue()
}

func (g *generator) serveDue() error {
	for len(g.due) > 0 && len(g.idle) > 0 {
		// The one that waited longest: a server may end a connection that asks nothing for seconds.
		i, since := g.idle[0], g.due[0]
		g.idle, g.due = g.idle[1:], g.due[1:]
		if err := g.ask(i, since); err != nil {
			return err
		}
	}
	return nil
}

// ask sends the connection's next request.
func (g *generator) ask(i int, since time.Time) error {
	c := &g.connected[i]
	c.out, c.since, c.asking = g.source.request(c.out[:0], i), since, true
	g.open++
	for sent := 0; sent < len(c.out); {
		n, err := unix.Write(c.fd, c.out[sent:])
		switch {
		case err == nil:
			sent += n
		case errors.Is(err, unix.EAGAIN):
			// A request larger than the socket's buffer; the server reads it without answering, so waiting is right.
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}, -1); err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("sending: %w", err)
			}
		case errors.Is(err, unix.EINTR):
		default:
			return g.lost(i, err)
		}
	}
	return nil
}

// receive reads what a connection has, and deals with the answer if it is all there.
func (g *generator) receive(i int) error {
	c := &g.connected[i]
	if cap(c.in)-len(c.in) < 4096 {
		c.in = append(make([]byte, 0, max(2*cap(c.in), 16<<10)), c.in...)
	}
	n, err := unix.Read(c.fd, c.in[len(c.in):cap(c.in)])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil || n == 0:
		return g.lost(i, err)
	}
	c.in = c.in[:len(c.in)+n]
	a, size, err := parseAnswer(c.in, &g.chunks)
	if err != nil || size > 0 && (!c.asking || size < len(c.in)) {
		return errors.Join(fmt.Errorf("%s answers what was not asked", g.addr), err)
	}
	if size == 0 {
		return nil
	}
	return g.settle(i, a)
}

func (g *generator) settle(i int, a answer) error {
	c := &g.connected[i]
	now := time.Now()
	g.latency.Add(now.Sub(c.since))
	right, wrong := g.source.answered(i, a.status, a.body)
	if g.note(right, wrong, now.Sub(g.began)); wrong > 0 {
		g.blame(fmt.Sprintf("status %d: %.300s", a.status, a.body))
	}
	c.in, c.asking = c.in[:0], false
	g.open--
	if a.close {
		if err := g.reconnect(i); err != nil {
			return err
		}
	}
	return g.next(i, now)
}

// next gives a free connection something to do.
func (g *generator) next(i int, now time.Time) error {
	switch {
	case g.rate > 0:
		g.idle = append(g.idle, i)
		return g.serveDue()
	case now.Sub(g.began) >= g.during:
		return nil
	}
	return g.ask(i, now)
}

// lost deals with a connection that the server has ended: its request, if there was one, has failed.
func (g *generator) lost(i int, cause error) error {
	c := &g.connected[i]
	g.hungUp++
	asked := c.asking
	if c.asking = false; asked {
		g.open--
		g.wrong++
		g.blame(fmt.Sprintf("connection lost: %v", cause))
	}
	if err := g.reconnect(i); err != nil || !asked {
		return err
	}
	return g.next(i, time.Now())
}

func (g *generator) reconnect(i int) error {
	if err := unix.Close(g.connected[i].fd); err != nil {
		return fmt.Errorf("closing a connection: %w", err)
	}
	g.connected[i].fd = -1
	return g.connect(i)
}
