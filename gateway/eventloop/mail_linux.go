package eventloop

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hoplog/hoplog/gateway/http1"
)

// maxJobs is how many requests may wait for a worker. What comes on top is answered as busy.
const maxJobs = 4096

// job is a request that a worker answers.
type job struct {
	loop   *loop
	conn   *conn
	peer   netip.Addr
	head   []byte
	answer []byte
	last   bool // the connection ends with it
}

var jobPool = sync.Pool{New: func() any { return &job{} }}

// hand gives a request to the workers. False: too many wait already.
func (l *loop) hand(c *conn, head []byte) bool {
	j := jobPool.Get().(*job)
	j.loop, j.conn, j.peer, j.last = l, c, c.peer, l.request.Close
	j.head = append(j.head[:0], head...)
	select {
	case l.server.jobs <- j:
		c.waiting = true
		return true
	default:
		jobPool.Put(j)
		return false
	}
}

// startWorkers starts the workers. The result ends them, when no loop is left.
func (s *Server) startWorkers() (stop func()) {
	var workers sync.WaitGroup
	for range s.config.Workers {
		workers.Go(func() {
			var q http1.Request
			for j := range s.jobs {
				s.work(j, &q)
			}
		})
	}
	return func() {
		close(s.jobs)
		workers.Wait()
	}
}

func (s *Server) work(j *job, q *http1.Request) {
	if _, err := q.Parse(j.head); err != nil { // it was read before
		j.answer, j.last = s.config.Handler.Refuse(j.answer[:0], err), true
	} else {
		q.Close = q.Close || j.last
		j.answer, _ = s.config.Handler.Respond(j.answer[:0], q, j.peer, true)
	}
	j.loop.mail.send(func(m *mail) { m.done = append(m.done, j) })
}

// finished goes on with a connection whose request a worker has answered.
func (l *loop) finished(j *job) {
	c := j.conn
	l.out = append(l.out[:0], j.answer...)
	last := j.last
	j.conn, j.loop = nil, nil
	jobPool.Put(j)
	if !l.isOpen(c) {
		l.out = l.out[:0]
		return
	}
	c.waiting = false
	l.answered(c, last, c.pending)
	if l.resume(c) && c.again {
		l.readLater(c)
	}
}

// resume writes the answer of a worker and those to what has come meanwhile. True: there may be more to read.
func (l *loop) resume(c *conn) bool {
	if len(c.pending) == 0 || c.closing {
		return l.write(c) && l.settle(c)
	}
	return l.goOn(c) // which writes both together
}

// mail is what others want of a loop: they leave it here and wake the loop.
type mail struct {
	fd    int // an eventfd
	mu    sync.Mutex
	told  bool // the loop is woken and has not looked yet
	gone  bool // the loop has ended
	conns []*conn
	done  []*job
	drain bool
	stop  bool
}

func (m *mail) open() (err error) {
	m.fd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return err
}

// send leaves something, and wakes the loop unless it is awake for it already. False: the loop has ended.
func (m *mail) send(what func(*mail)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return false
	}
	what(m)
	if !m.told {
		m.told = true
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(m.fd, one[:])
	}
	return true
}

// shut: nobody looks any more.
func (m *mail) shut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
	for _, c := range m.conns {
		closeFD(int(c.fd))
	}
	m.close()
}

func (m *mail) close() {
	if m.fd > 0 {
		closeFD(m.fd)
		m.fd = 0
	}
}

// readMail does what was asked for.
func (l *loop) readMail() {
	m := &l.mail
	var count [8]byte
	m.mu.Lock()
	_, _ = unix.Read(m.fd, count[:])
	conns, done, drain, stop := m.conns, m.done, m.drain, m.stop
	m.conns, m.done, m.told = nil, nil, false
	m.mu.Unlock()
	for _, c := range conns {
		l.adopt(c)
	}
	for _, j := range done {
		l.finished(j)
	}
	if drain && !l.draining {
		l.drain()
	}
	l.stopped = stop
}

// drain takes no more connections and ends those that ask for nothing, after a look at what has come.
func (l *loop) drain() {
	l.draining = true
	l.deaf()
	for _, c := range l.conns {
		if c == nil || !c.isIdle() {
			continue
		}
		if l.read(c, false); l.isOpen(c) && c.isIdle() {
			l.close(c)
		}
	}
}

// isIdle: nothing of a request has come that is not answered, and all answers are written.
func (c *conn) isIdle() bool {
	return !c.begun && !c.waiting && !c.closing && len(c.queued) == 0
}
