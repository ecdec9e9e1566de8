package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ErrNotFound says that there is no such link, or that it was not there yet.
var ErrNotFound = errors.New("no such link")

// errNoRow: rows are never removed, and come with the keys that name them.
var errNoRow = errors.New("a row is not where the store says that it is")

// Config is what a store needs. Dir holds the store and nothing else.
type Config struct {
	Dir    string
	Source runner.Source
	Pebble runner.PebbleOptions
	// Committed, if set, hears of every accepted envelope after it can be read here, per partition in order, those of
	// buckets without links too. It must not block.
	Committed func([]runner.Accepted)
}

// Store is the links read model and the runner that feeds it.
type Store struct {
	*runner.Runner
	pebble *runner.Pebble
}

// Open opens the store in a directory, or makes it. It is fed while Run runs.
func Open(cfg Config) (*Store, error) {
	pebbles, err := runner.OpenPebbleOf(storeName, cfg.Dir, cfg.Pebble)
	if err != nil {
		return nil, err
	}
	run, err := runner.New(runner.Config{Topic: eventlog.EventsLink, Stream: events.StreamLink, Source: cfg.Source,
		Store: pebbles, Projection: &projection{committed: cfg.Committed}, Logger: cfg.Pebble.Logger})
	if err != nil {
		return nil, errors.Join(err, pebbles.Close())
	}
	return &Store{run, pebbles}, nil
}

// Close ends the tail and closes the store. Nobody may be reading, and no run be under way.
func (s *Store) Close() error {
	s.Runner.Close()
	return s.pebble.Close()
}

// Get returns a link as it is, tombstones too.
func (s *Store) Get(namespace, code string) (link *pb.Link, err error) {
	at, err := s.find(namespace, code)
	if err == nil {
		link, err = s.linkAt(at)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("reading a link: %w", err)
	}
	return link, err
}

// find returns the key of a link's row.
func (s *Store) find(namespace, code string) (at []byte, err error) {
	var stack [512]byte
	at, found, err := s.pebble.Get(nil, appendRouteKey(stack[:0], namespace, code))
	if err == nil && !found {
		err = ErrNotFound
	}
	return at, err
}

func (s *Store) linkAt(at []byte) (link *pb.Link, err error) {
	err = s.row(at, func(row []byte) (err error) { link, err = decodeRow(row); return err })
	return link, err
}

// row lends f the row under a key.
func (s *Store) row(at []byte, f func(row []byte) error) error {
	row, closer, err := s.pebble.DB().Get(at)
	if errors.Is(err, pebble.ErrNotFound) {
		return errNoRow
	}
	if err != nil {
		return err
	}
	return errors.Join(f(row), closer.Close())
}

// History returns all events of a link, oldest first, versions dense from 1.
func (s *Store) History(namespace, code string) (entries []*pb.HistoryEntry, err error) {
	err = s.eachEntry(namespace, code, func(entry *pb.HistoryEntry) bool {
		entries = append(entries, entry)
		return true
	})
	return entries, err
}

// At returns a link as it was at a version; ErrNotFound if it never had it.
func (s *Store) At(namespace, code string, version uint64) (*pb.Link, error) {
	link, err := s.foldWhile(namespace, code, func(e *pb.HistoryEntry) bool { return events.VersionOf(e.GetEvent()) <= version })
	if err == nil && link.GetVersion() != version {
		return nil, ErrNotFound
	}
	return link, err
}

// AsOf returns a link as it was at a stamped time in microseconds, events of that very microsecond included.
func (s *Store) AsOf(namespace, code string, timeUS int64) (*pb.Link, error) {
	return s.foldWhile(namespace, code, func(e *pb.HistoryEntry) bool { return e.GetTimeUs() <= timeUS })
}

// AsOfPosition returns a link as it was at a position of its bucket; events.BucketOf says which that is.
func (s *Store) AsOfPosition(namespace, code string, p events.Position) (*pb.Link, error) {
	if bucket := events.BucketOf(namespace, code); p.Stream != events.StreamLink || p.Bucket != bucket {
		return nil, fmt.Errorf("position %s says nothing of a link of bucket %d: %w", p, bucket, runner.ErrForeignStream)
	}
	return s.foldWhile(namespace, code, func(e *pb.HistoryEntry) bool { return e.GetSeq() <= p.Seq })
}

// foldWhile folds a link's history up to the first entry that is not wanted. Within a bucket neither versions nor stamped
// times nor sequences run back.
func (s *Store) foldWhile(namespace, code string, wanted func(*pb.HistoryEntry) bool) (link *pb.Link, err error) {
	err = s.eachEntry(namespace, code, func(entry *pb.HistoryEntry) bool {
		if !wanted(entry) {
			return false
		}
		link = projections.EvolveLink(link, entry)
		return true
	})
	if err == nil && link == nil {
		err = ErrNotFound
	}
	return link, err
}

// errEnough ends a scan early.
var errEnough = errors.New("enough")

// eachEntry shows the entries of a link's history in order until f returns false.
func (s *Store) eachEntry(namespace, code string, f func(*pb.HistoryEntry) bool) error {
	at, err := s.find(namespace, code)
	if errors.Is(err, ErrNotFound) {
		return err
	}
	var only *pb.HistoryEntry // of a link that never changed
	if err == nil {
		err = s.row(at, func(row []byte) (err error) {
			if first := firstEntry(row); first != nil {
				only, err = decodeEntry(first)
			}
			return err
		})
	}
	if err == nil && only == nil {
		err = s.scanEntries(namespace, code, f)
	}
	if err != nil {
		return fmt.Errorf("reading a history: %w", err)
	}
	if only != nil {
		f(only)
	}
	return nil
}

func (s *Store) scanEntries(namespace, code string, f func(*pb.HistoryEntry) bool) error {
	err := s.pebble.Scan(appendHistoryKey(nil, namespace, code), func(_, value []byte) error {
		entry, err := decodeEntry(value)
		if err == nil && !f(entry) {
			err = errEnough
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// Request is what became of a write.
type Request struct {
	*pb.StoredRequest
	Position events.Position
	// Row is the row's index if the request is one of a batch, else 0.
	Row int
}

// Request returns what is stored under an owner's request key, the answer first: a key that was used in several buckets is
// answered by the one with the lowest time, then the lowest bucket. Nothing stored is no error.
func (s *Store) Request(owner, key string) ([]Request, error) {
	begin := appendRequestKey(nil, owner, key)
	found, err := s.requests(begin, append(begin[:len(begin):len(begin)], requestEnd), func(rest []byte) (int, bool) { return 0, len(rest) == 0 })
	slices.SortFunc(found, byAge)
	return found, err
}

// RequestRows returns what is stored of the rows of a batch, in row order, one answer per row. Rows that are not decided
// yet are not among them.
func (s *Store) RequestRows(owner, batchKey string) ([]Request, error) {
	begin := append(appendRequestKey(nil, owner, batchKey), 0)
	found, err := s.requests(begin, begin, rowIndex)
	slices.SortFunc(found, func(a, b Request) int {
		if a.Row != b.Row {
			return a.Row - b.Row
		}
		return byAge(a, b)
	})
	return slices.CompactFunc(found, func(a, b Request) bool { return a.Row == b.Row }), err
}

func byAge(a, b Request) int {
	if a.GetTimeUs() != b.GetTimeUs() {
		return int(min(1, max(-1, a.GetTimeUs()-b.GetTimeUs())))
	}
	return int(a.Position.Bucket) - int(b.Position.Bucket)
}

// maxRow is more than any batch has rows.
const maxRow = 1 << 20

// rowIndex reads a row's index as it is written: decimal, without leading zeros.
func rowIndex(rest []byte) (int, bool) {
	n, err := strconv.Atoi(string(rest))
	return n, err == nil && n >= 0 && n < maxRow && strconv.Itoa(n) == string(rest)
}

func (s *Store) requests(begin, prefix []byte, row func(rest []byte) (int, bool)) (found []Request, err error) {
	err = s.pebble.Scan(prefix, func(key, value []byte) error {
		rest, bucket, ok := cutRequestBucket(key, len(begin))
		if !ok {
			return nil
		}
		index, ok := row(rest)
		if !ok {
			return nil
		}
		request, err := decodeRequest(bucket, value)
		request.Row = index
		found = append(found, request)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading requests: %w", err)
	}
	return found, nil
}

func decodeRequest(bucket uint32, value []byte) (Request, error) {
	r := Request{StoredRequest: &pb.StoredRequest{}, Position: events.Position{Stream: events.StreamLink, Bucket: bucket}}
	if len(value) < 8 {
		return r, fmt.Errorf("outcome of %d bytes", len(value))
	}
	r.Position.Seq = binary.BigEndian.Uint64(value)
	return r, r.UnmarshalVT(value[8:])
}
