package engine

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// database is the opened data directory. There can be one per process, ever: the library keeps global state.
type database struct {
	lib     *library
	args    []string
	base    pointer // keeps the engine open while no session is
	mu      sync.Mutex
	closed  bool
	places  chan struct{}
	open    sync.WaitGroup
	version string
}

func openDatabase(lib *library, dir, config string, maxQueries int) (*database, error) {
	db := &database{lib: lib, places: make(chan struct{}, maxQueries),
		args: []string{"clickhouse", "--path=" + dir, "--config-file=" + config}}
	if db.base = db.connect(); db.base == nil {
		return nil, fmt.Errorf("%w: %s", ErrOpen, dir)
	}
	s := &session{db: db, conn: db.base}
	res, err := s.query([]byte("SELECT version()"), "TabSeparated", nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOpen, err)
	}
	db.version = strings.TrimSpace(string(res.bytes()))
	res.close()
	return db, nil
}

// connect makes a connection, which is a session of its own inside the engine: about 0.2 ms. It resets some signal
// handlers each time, hence the bracket; the lock makes that bracket whole.
func (db *database) connect() pointer {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil // a connection now would open the directory again
	}
	args := newCStrings(db.args)
	defer args.release()
	saved := saveSignals()
	defer restoreSignals(saved)
	conn := db.lib.connect(int32(len(db.args)), args.array())
	runtime.KeepAlive(args)
	return conn
}

// session waits for a place and opens a session, bound to this goroutine's thread until it is closed, because the
// library keeps the state of a streamed query in thread locals.
func (db *database) session(ctx context.Context) (*session, error) {
	select {
	case db.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	db.open.Add(1)
	conn := db.connect()
	if conn == nil {
		<-db.places
		db.open.Done()
		return nil, &exception{code: codeLogicalError, message: "the engine refused a new session"}
	}
	runtime.LockOSThread()
	return &session{db: db, conn: conn}, nil
}

// kill ends the running queries whose log_comment is the given mark, which must not need quoting.
func (db *database) kill(mark string) {
	conn := db.connect()
	if conn == nil {
		return
	}
	s := &session{db: db, conn: conn}
	// An error means that the query has ended by itself.
	_ = s.exec("KILL QUERY WHERE Settings['log_comment'] = '" + mark + "' ASYNC")
	db.lib.closeConnection(conn)
}

// close shuts the engine down, which ends merges and writes what is open. If sessions are still open after the grace it
// leaves that to the next start (closing under a running query would crash) and reports it.
func (db *database) close(grace time.Duration) error {
	idle := make(chan struct{})
	go func() { db.open.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-time.After(grace):
		return fmt.Errorf("closing clickhouse engine: queries still run after %s", grace)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.closed = true
	db.lib.closeConnection(db.base)
	return nil
}

// session runs the queries of one request, one at a time. Not for concurrent use.
type session struct {
	db   *database
	conn pointer
}

func (s *session) close() {
	s.db.lib.closeConnection(s.conn)
	runtime.UnlockOSThread()
	<-s.db.places
	s.db.open.Done()
}

func (s *session) exec(text string) error {
	res, err := s.query([]byte(text), "Null", nil)
	if err != nil {
		return err
	}
	res.close()
	return nil
}

// query runs a statement to its end and holds its whole output in memory. format is used when the statement has no
// FORMAT of its own; params fill its {name:Type} places. The error is an *exception.
func (s *session) query(text []byte, format string, params []parameter) (*result, error) {
	return s.check(s.call(s.db.lib.query, text, format, params))
}

// stream starts a SELECT whose output is fetched chunk by chunk.
func (s *session) stream(text []byte, format string, params []parameter) (*stream, error) {
	res, err := s.check(s.call(s.db.lib.stream, text, format, params))
	if err != nil {
		return nil, err
	}
	return &stream{s: s, p: res.p}, nil
}

type parameter struct{ name, value string }

type callFunc = func(conn, text pointer, textLen uint64, format pointer, formatLen uint64, names, nameLens, values, valueLens pointer, count uint64) pointer

func (s *session) call(fn callFunc, text []byte, format string, params []parameter) pointer {
	var names, values []string
	for _, p := range params {
		names, values = append(names, p.name), append(values, p.value)
	}
	strings := newCStrings([]string{format})
	cNames, cValues := newCStrings(names), newCStrings(values)
	defer strings.release()
	defer cNames.release()
	defer cValues.release()
	p := fn(*(*pointer)(s.conn), pointer(unsafe.SliceData(text)), uint64(len(text)), strings.pointers[0], strings.lengths[0],
		cNames.array(), cNames.sizes(), cValues.array(), cValues.sizes(), uint64(len(params)))
	runtime.KeepAlive(text)
	runtime.KeepAlive([]*cStrings{strings, cNames, cValues})
	return p
}

func (s *session) check(p pointer) (*result, error) {
	if p == nil {
		return nil, &exception{code: codeLogicalError, message: "the engine gave no result"}
	}
	if text := goString(s.db.lib.resultError(p)); text != "" {
		s.db.lib.destroy(p)
		return nil, parseException(text)
	}
	return &result{lib: s.db.lib, p: p}, nil
}

// result is the output of a query, in the library's memory.
type result struct {
	lib *library
	p   pointer
}

// bytes is valid until close.
func (r *result) bytes() []byte {
	n := r.lib.length(r.p)
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(r.lib.buffer(r.p)), n)
}

func (r *result) close() { r.lib.destroy(r.p) }

// summary is what ClickHouse reports in X-ClickHouse-Summary.
func (r *result) summary() string {
	return fmt.Sprintf(`{"read_rows":"%d","read_bytes":"%d","written_rows":"%d","written_bytes":"%d"}`,
		r.lib.storageRowsRead(r.p), r.lib.storageBytesRead(r.p), r.lib.rowsWritten(r.p), r.lib.bytesWritten(r.p))
}

// stream is a running SELECT.
type stream struct {
	s    *session
	p    pointer
	done bool
}

// next returns the next chunk, or nil at the end.
func (st *stream) next() (*result, error) {
	res, err := st.s.check(st.s.db.lib.fetch(*(*pointer)(st.s.conn), st.p))
	if err != nil {
		st.done = true
		return nil, err
	}
	if st.s.db.lib.length(res.p) == 0 {
		st.done = true
		res.close()
		return nil, nil
	}
	return res, nil
}

func (st *stream) close() {
	if !st.done {
		st.s.db.lib.cancel(*(*pointer)(st.s.conn), st.p)
	}
	st.s.db.lib.destroy(st.p)
}
