package eventloop

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// maxAccepts is how many connections are taken before those that are there get their turn.
const maxAccepts = 64

func (l *loop) accept() {
	for range maxAccepts {
		fd, from, err := unix.Accept4(l.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			l.admit(fd, addressOf(from))
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
			l.config.Logger.Error("no more connections can be accepted", "error", err)
			l.pauseAccepting()
			return
		default: // the client is gone before we came to it
		}
	}
}

// pauseAccepting: what the system has no room for would wake this loop again at once.
func (l *loop) pauseAccepting() {
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, l.listener, nil)
	l.paused = true
}

func (l *loop) resumeAccepting() {
	if l.listener >= 0 {
		_ = l.watch(l.listener, unix.EPOLLIN|unix.EPOLLEXCLUSIVE)
	}
}

// admit gives a new connection to the loop that has the fewest.
func (l *loop) admit(fd int, peer netip.Addr) {
	if l.server.open.Add(1) > int64(l.config.MaxConnections) {
		l.server.open.Add(-1)
		l.server.counts.End(ErrBusy)
		_, _ = sent(int32(fd), l.config.Handler.Refuse(l.out[:0], ErrBusy))
		closeFD(fd)
		return
	}
	l.server.counts.Accept()
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	c := &conn{fd: int32(fd), slot: -1, peer: peer, proxied: l.isProxy(peer)}
	if to := l.server.leastBusy(); to.load.Add(1) > 0 && to != l {
		if !to.mail.send(func(m *mail) { m.conns = append(m.conns, c) }) {
			l.server.open.Add(-1)
			closeFD(fd)
		}
		return
	}
	l.adopt(c)
}

func (l *loop) isProxy(peer netip.Addr) bool {
	return len(l.config.Proxies) > 0 && slices.ContainsFunc(l.config.Proxies, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// adopt makes a connection this loop's own. It is counted already.
func (l *loop) adopt(c *conn) {
	for int(c.fd) >= len(l.conns) {
		l.conns = append(l.conns, make([]*conn, max(64, len(l.conns)))...)
	}
	l.conns[c.fd] = c
	l.timer.set(c, l.now+l.config.RequestTimeout)
	// Edge-triggered: an event comes once for all that has arrived, and none while a connection stands still.
	const edge = 1 << 31
	if l.draining || l.watch(int(c.fd), unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|edge) != nil {
		l.close(c)
	}
}
