package eventloop

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hoplog/hoplog/gateway/http1"
)

const (
	// maxJobs is how many requests may wait for a worker. What comes on top is answered as busy.
	maxJobs = 4096
	// errandJobs is how many of them a worker takes at once: to wake it, and its loop in the end, costs as much as a look-up
	// that finds its block in memory.
	errandJobs = 8
	// errandTime is how long a worker may take before it leaves the rest of an errand to others: this disk is slow.
	errandTime = 200 * time.Microsecond
)

// job is a request that a worker answers.
type job struct {
	conn   *conn
	peer   netip.Addr
	head   []byte
	answer []byte
	last   bool // the connection ends with it
}

var jobPool = sync.Pool{New: func() any { return &job{} }}

// errand is what a worker does for a loop.
type errand struct {
	loop *loop
	jobs []*job
}

// hand puts a request aside for the workers. False: too many wait already.
func (l *loop) hand(c *conn, head []byte) bool {
	if l.server.waiting.Add(1) > maxJobs {
		l.server.waiting.Add(-1)
		return false
	}
	j := jobPool.Get().(*job)
	j.conn, j.peer, j.last = c, c.peer, l.request.Close
	j.head = append(j.head[:0], head...)
	l.handed = append(l.handed, j)
	c.waiting = true
	return true
}

// deliver gives what was put aside to the workers. There is room: no more jobs wait than errands can.
func (l *loop) deliver() {
	l.server.delivered.Add(len(l.handed))
	for jobs := range slices.Chunk(l.handed, errandJobs) {
		l.server.errands <- errand{l, slices.Clone(jobs)}
	}
	clear(l.handed)
	l.handed = l.handed[:0]
}

// startWorkers starts the workers. The result ends them, when no loop is left.
func (s *Server) startWorkers() (stop func()) {
	var workers sync.WaitGroup
	for range s.config.Workers {
		workers.Go(func() {
			var q http1.Request
			for e := range s.errands {
				s.run(e, &q)
			}
		})
	}
	return func() {
		s.delivered.Wait() // who does one may leave a part of it to others
		close(s.errands)
		workers.Wait()
	}
}

// run does an errand, or as much of it as goes quickly.
func (s *Server) run(e errand, q *http1.Request) {
	began := time.Now()
	for i, j := range e.jobs {
		s.work(j, q)
		if rest := e.jobs[i+1:]; len(rest) > 0 && time.Since(began) > errandTime {
			e.jobs = e.jobs[:i+1]
			s.errands <- errand{e.loop, rest}
			break
		}
	}
	s.waiting.Add(-int64(len(e.jobs)))
	s.delivered.Add(-len(e.jobs))
	e.loop.mail.send(func(m *mail) { m.done = append(m.done, e.jobs...) })
}

func (s *Server) work(j *job, q *http1.Request) {
	if _, err := q.Parse(j.head); err != nil { // it was read before
		j.answer, j.last = s.config.Handler.Refuse(j.answer[:0], err), true
		return
	}
	q.Close = q.Close || j.last
	j.answer, _ = s.config.Handler.Respond(j.answer[:0], q, j.peer, true)
}

// finished goes on with a connection whose request a worker has answered.
func (l *loop) finished(j *job) {
	c := j.conn
	l.out = append(l.out[:0], j.answer...)
	last := j.last
	j.conn = nil
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
