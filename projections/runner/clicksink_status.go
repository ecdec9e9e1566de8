package runner

import (
	"sync"
	"time"

	"github.com/hoplog/hoplog/projections"
)

// ClickPartitionStatus is how the sink of one partition is. Totals are over all writers the partition ever had.
type ClickPartitionStatus struct {
	Partition  int32
	Next       int64 // offset of the clicks topic below which all is inserted, or is about to be
	Rows       uint64
	Repeats    uint64 // dropped
	Gaps       uint64 // clicks that nodes dropped or lost
	Voids      uint64 // intents of writers that were no longer the partition's
	Inserted   uint64 // rows by this process
	LastInsert time.Time
	Waiting    error // why it waits and tries again
	Stopped    error // why it stopped for good
}

type clickStatus struct {
	mu sync.Mutex
	s  ClickPartitionStatus
}

func (c *clickStatus) get() ClickPartitionStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s
}

func (c *clickStatus) update(f func(s *ClickPartitionStatus)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.s)
}

func (c *clickStatus) folded(i *projections.ClickIntents) {
	c.update(func(s *ClickPartitionStatus) {
		s.Next, s.Rows, s.Repeats, s.Gaps, s.Voids = i.Next(), i.Rows, i.Repeats, i.Gaps, i.Voids
	})
}

func (c *clickStatus) inserted(i *projections.ClickIntents, b *projections.ClickBatch) {
	c.folded(i)
	c.update(func(s *ClickPartitionStatus) {
		s.Inserted += uint64(len(b.Rows))
		s.LastInsert, s.Waiting = time.Now(), nil
	})
}
