package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway/spool"
)

var (
	// errClickUnencodable: a block is larger than its topic takes; it cannot be sent at all.
	errClickUnencodable = errors.New("click block is too large for its topic")
	// errClickTooOld: a block waited so long that the log may have forgotten what it held of its neighbours.
	errClickTooOld = errors.New("click block is older than what the log keeps")
)

// run sends block after block until the partition is closed and empty, or ctx is done. A block leaves the spool when it is
// acknowledged or given up, and not before.
func (p *clickPartition) run(ctx context.Context) {
	var value []byte
	for {
		block, ok := p.next(ctx)
		if !ok {
			return
		}
		value = append(value[:0], block.Bytes()...)
		tries, err := p.send(ctx, block, value)
		if ctx.Err() != nil && err != nil {
			return // what waits is counted as waiting, and stays in the spool
		}
		if tries > 1 {
			value = nil // the log's client may still hold it, for the tries that failed
		}
		p.settle(block.Records(), err)
		p.recorder.spool.Release(block)
	}
}

const (
	clickFirstPause = 50 * time.Millisecond
	clickLongPause  = 2 * time.Second
)

// send appends the block, again and again until the log has it. The error says that it is given up, or ctx was done.
func (p *clickPartition) send(ctx context.Context, block *spool.Segment, value []byte) (tries int, _ error) {
	if most := p.recorder.config.MaxAge; most > 0 && time.Since(block.Opened) > most {
		return 0, fmt.Errorf("of %s: %w", block.Opened.UTC().Format(time.RFC3339), errClickTooOld)
	}
	for pause := clickFirstPause; ; pause = min(2*pause, clickLongPause) {
		tries++
		answer := make(chan error, 1)
		p.recorder.appender.AppendAsync(ctx, p.number, eventlog.Record{Value: value}, func(_ int64, err error) { answer <- err })
		err := <-answer
		if err == nil {
			return tries, nil
		}
		if errors.Is(err, eventlog.ErrTooLarge) {
			return tries, errors.Join(errClickUnencodable, err)
		}
		p.note(err)
		select {
		case <-ctx.Done():
			return tries, err
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

func (p *clickPartition) settle(clicks uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting -= clicks
	if err != nil {
		p.dropped += clicks
		p.failure = err
		return
	}
	p.sent += clicks
	p.blocks++
	p.failure = nil
}
