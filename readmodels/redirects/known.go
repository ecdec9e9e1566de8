package redirects

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/filter"
)

// known is a filter over the keys of all links. It is in stripes of neighbouring buckets: the keys of one lie side by side in
// the store, so that a stripe whose filter has grown ragged is read again, counted, and made anew at the right size, in the
// tenth of a second that ten million links take. Codes are never given out again and tombstones stay, so no key ever leaves.
type known struct {
	stripes [stripes]stripe
	// wanted wakes who reads the store for stripes that need it.
	wanted chan struct{}
	// flood is when so much was committed at once, last, that the filter forgot everything.
	flood atomic.Int64
}

const (
	stripes       = 64
	stripeBuckets = events.Buckets / stripes
)

type stripe struct {
	keys atomic.Pointer[filter.Filter] // nil: not read yet, the store answers
	mu   sync.Mutex
	// reading: the keys of the store are being read, and those that are committed meanwhile gathered in late.
	reading bool
	late    []uint64
}

// A stripe's filter has room for a tenth more keys than it was made for, and then a quarter more in a second layer; when that
// is nearly full, it is made anew. So it takes 1.6 to 1.9 bytes a link, and lets less than one key in a hundred through.
const (
	perBlock    = 42
	spareTenth  = 10
	growth      = 0.25
	fewestKeys  = 128
	mostLayers  = 2
	quietBefore = time.Second // between the last flood and the reading of the store
)

func stripeOf(hash uint64) int { return int(hash % events.Buckets / stripeBuckets) }

// absent reports that the store surely does not hold a key.
func (k *known) absent(hash uint64) bool {
	keys := k.stripes[stripeOf(hash)].keys.Load()
	return keys != nil && keys.Absent(hash)
}

// add takes a key that was committed and not announced yet.
func (k *known) add(hash uint64) {
	s := &k.stripes[stripeOf(hash)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading {
		s.late = append(s.late, hash)
	}
	if keys := s.keys.Load(); keys != nil {
		keys.Add(hash)
		if !s.reading && ragged(keys) {
			k.want()
		}
	}
}

func ragged(keys *filter.Filter) bool { return keys.Layers() > mostLayers }

func (k *known) want() {
	select {
	case k.wanted <- struct{}{}:
	default:
	}
}

// forget is for when nearly everything may have changed: the store answers until it has been read again.
func (k *known) forget(now int64) {
	k.flood.Store(now)
	for i := range k.stripes {
		s := &k.stripes[i]
		s.mu.Lock()
		s.keys.Store(nil)
		s.reading, s.late = false, nil
		s.mu.Unlock()
	}
	k.want()
}

// needs reports whether a stripe's keys should be read from the store.
func (s *stripe) needs() bool {
	keys := s.keys.Load()
	return keys == nil || ragged(keys)
}

// begin comes before the keys of a stripe are read.
func (s *stripe) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading, s.late = true, nil
}

// end takes the hashes of all keys that were read; those that came late follow. If everything was forgotten meanwhile, so is
// what was read.
func (s *stripe) end(read []uint64) {
	keys := filter.New(filter.Shape{First: max(fewestKeys, len(read)+len(read)/spareTenth), PerBlock: perBlock, Growth: growth})
	for _, hash := range read {
		keys.Add(hash)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reading {
		return
	}
	for _, hash := range s.late {
		keys.Add(hash)
	}
	s.keys.Store(keys)
	s.reading, s.late = false, nil
}

// giveUp ends a reading that failed. What the stripe knew, it still knows.
func (s *stripe) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading, s.late = false, nil
}
