package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/hoplog/hoplog/gateway/spool"
)

// clickPartition is the open block of one partition, those behind it, and its counts. A block is a segment of the spool.
// One goroutine sends them.
type clickPartition struct {
	mu       sync.Mutex
	sequence uint64 // last one given out
	open     *spool.Segment
	full     []*spool.Segment // oldest first; those of an earlier process are the first of all
	closing  bool
	sent     uint64
	dropped  uint64
	waiting  uint64
	blocks   uint64
	failure  error
	encoder  clickEncoder

	wake     chan struct{} // there is a first click, a full block, or an end
	number   int32
	prefix   []byte // of every block
	recorder *ClickRecorder
	_        [64]byte // keeps neighbours off each other's cache lines
}

func (p *clickPartition) prepare(r *ClickRecorder, number int32) {
	p.number, p.recorder, p.wake = number, r, make(chan struct{}, 1)
	p.prefix = clickBlockPrefix(r.config.Node, r.config.Region, r.boot, number)
}

// takeOver queues a block that an earlier process left, before any of this one.
func (p *clickPartition) takeOver(block *spool.Segment) {
	p.full = append(p.full, block)
	p.waiting += block.Records()
}

func (p *clickPartition) start(ctx context.Context) {
	p.recorder.senders.Add(1)
	go func() {
		defer p.recorder.senders.Done()
		p.run(ctx)
	}()
}

func (p *clickPartition) record(c *Click, agent *clickKnownAgent, visitor uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sequence++
	if p.closing || !p.makeRoom() || !p.open.Commit(p.encoder.append(p.open.Tail(), c, p.sequence, agent, visitor)) {
		p.dropped++
		return
	}
	p.waiting++
	if p.open.Records() == 1 {
		p.signal()
	}
}

// makeRoom closes a full block and opens the next. False: the spool is full.
func (p *clickPartition) makeRoom() bool {
	if p.open != nil && p.open.Len() < p.recorder.config.BlockBytes && p.open.Fits(clickMaxBytes) {
		return true
	}
	if p.open != nil {
		p.full = append(p.full, p.open)
		p.signal()
	}
	p.open = p.recorder.spool.Take(spool.Identity{Partition: p.number, Boot: p.recorder.boot, First: p.sequence}, p.prefix)
	return p.open != nil
}

func (p *clickPartition) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *clickPartition) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	p.signal()
}

func (p *clickPartition) addTo(s *ClickStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Taken += p.sequence
	s.Sent += p.sent
	s.Dropped += p.dropped
	s.Waiting += p.waiting
	s.Blocks += p.blocks
	if p.failure != nil {
		s.LastError = p.failure.Error()
	}
}

// next returns the oldest block that is due: full, open for long enough, or the last.
func (p *clickPartition) next(ctx context.Context) (*spool.Segment, bool) {
	timer := time.NewTimer(p.recorder.config.FlushEvery)
	defer timer.Stop()
	timed, due := false, false
	for {
		block, state := p.take(due)
		switch state {
		case clickTaken:
			return block, true
		case clickEnded:
			return nil, false
		case clickOpen:
			if !timed {
				timer.Reset(p.recorder.flushIn(time.Now()))
				timed = true
			}
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-p.wake:
		case <-timer.C:
			due = timed
		}
	}
}

type clickTake uint8

const (
	clickNothing clickTake = iota
	clickOpen              // there is an open block, not due yet
	clickTaken
	clickEnded
)

func (p *clickPartition) take(due bool) (*spool.Segment, clickTake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.full) > 0 {
		block := p.full[0]
		p.full = append(p.full[:0], p.full[1:]...)
		return block, clickTaken
	}
	if p.open == nil {
		if p.closing {
			return nil, clickEnded
		}
		return nil, clickNothing
	}
	if !due && !p.closing {
		return nil, clickOpen
	}
	block := p.open
	p.open = nil
	return block, clickTaken
}
