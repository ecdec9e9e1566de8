package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// clickBlock is a run of raw clicks with consecutive sequences.
type clickBlock struct {
	first  uint64 // sequence of its first click
	clicks uint64
	arena  []byte
}

// clickPartition is the open block of one partition, those behind it, and its counts. One goroutine sends them.
type clickPartition struct {
	mu       sync.Mutex
	sequence uint64 // last one given out
	open     clickBlock
	full     []clickBlock // oldest first
	closing  bool
	sent     uint64
	dropped  uint64
	waiting  uint64
	blocks   uint64
	failure  error

	wake     chan struct{} // there is a first click, a full block, or an end
	number   int32
	recorder *ClickRecorder
	_        [64]byte // keeps neighbours off each other's cache lines
}

func (p *clickPartition) start(ctx context.Context, r *ClickRecorder, number int32) {
	p.number, p.recorder, p.wake = number, r, make(chan struct{}, 1)
	r.senders.Add(1)
	go func() {
		defer r.senders.Done()
		p.run(ctx, newClickEncoder(r, number))
	}()
}

func (p *clickPartition) record(c *Click) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sequence++
	if p.closing || !p.makeRoom() {
		p.dropped++
		return
	}
	p.open.arena = appendRawClick(p.open.arena, c)
	p.open.clicks++
	p.waiting++
	if p.open.clicks == 1 {
		p.signal()
	}
}

// makeRoom closes a full block and opens the next. False: there is no memory left.
func (p *clickPartition) makeRoom() bool {
	if p.open.arena != nil && len(p.open.arena) < p.recorder.config.BlockBytes {
		return true
	}
	if p.open.clicks > 0 {
		p.full = append(p.full, p.open)
		p.open = clickBlock{}
		p.signal()
	}
	p.open.arena = p.recorder.arenas.take()
	p.open.first = p.sequence
	return p.open.arena != nil
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

// run sends block after block until the partition is closed and empty, or ctx is done.
func (p *clickPartition) run(ctx context.Context, encoder *clickEncoder) {
	for {
		block, ok := p.next(ctx)
		if !ok {
			return
		}
		err := p.send(ctx, encoder.encode(block))
		if ctx.Err() != nil && err != nil {
			return // what waits is counted as waiting
		}
		p.settle(block, err)
		p.recorder.arenas.put(block.arena)
	}
}

// next returns the oldest block that is due: full, open for long enough, or the last.
func (p *clickPartition) next(ctx context.Context) (clickBlock, bool) {
	timer := time.NewTimer(p.recorder.config.FlushEvery)
	defer timer.Stop()
	timed, due := false, false
	for {
		block, state := p.take(due)
		switch state {
		case clickTaken:
			return block, true
		case clickEnded:
			return block, false
		case clickOpen:
			if !timed {
				timer.Reset(p.recorder.config.FlushEvery)
				timed = true
			}
		}
		select {
		case <-ctx.Done():
			return block, false
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

func (p *clickPartition) take(due bool) (clickBlock, clickTake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.full) > 0 {
		block := p.full[0]
		p.full = append(p.full[:0], p.full[1:]...)
		return block, clickTaken
	}
	if p.open.clicks == 0 {
		if p.closing {
			return clickBlock{}, clickEnded
		}
		return clickBlock{}, clickNothing
	}
	if !due && !p.closing {
		return clickBlock{}, clickOpen
	}
	block := p.open
	p.open = clickBlock{}
	return block, clickTaken
}

const (
	clickFirstPause = 50 * time.Millisecond
	clickLongPause  = 2 * time.Second
)

// send appends the block, again and again until the log has it. The error is errClickUnencodable, or ctx was done.
func (p *clickPartition) send(ctx context.Context, value []byte) error {
	for pause := clickFirstPause; ; pause = min(2*pause, clickLongPause) {
		answer := make(chan error, 1)
		// The answer is waited for even when ctx is done: until it comes, the value belongs to the appender.
		p.recorder.appender.AppendAsync(ctx, p.number, eventlog.Record{Value: value}, func(_ int64, err error) { answer <- err })
		err := <-answer
		if err == nil {
			return nil
		}
		if errors.Is(err, eventlog.ErrTooLarge) {
			return errors.Join(errClickUnencodable, err)
		}
		p.note(err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// note remembers a failed append, and logs it when the one before it succeeded.
func (p *clickPartition) note(err error) {
	p.mu.Lock()
	news := p.failure == nil
	p.failure = err
	p.mu.Unlock()
	if news {
		p.recorder.logger.Warn("clicks not appended, trying again", "partition", p.number, "error", err)
	}
}

func (p *clickPartition) settle(block clickBlock, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting -= block.clicks
	if err != nil {
		p.dropped += block.clicks
		p.failure = err
		return
	}
	p.sent += block.clicks
	p.blocks++
	p.failure = nil
}
