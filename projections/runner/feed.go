package runner

import (
	"context"

	"github.com/hoplog/hoplog/events/eventlog"
)

// feed polls a tail while what it gave before is folded: the client asks the broker for more only when it has nothing left.
type feed struct {
	tail   Tail
	polled chan polled
	stop   context.CancelFunc
	done   chan struct{}
}

type polled struct {
	batches []eventlog.Batch
	err     error // the tail is over
}

// newFeed takes a tail over and polls at most so many records at a time.
func newFeed(tail Tail, most int) *feed {
	life, stop := context.WithCancel(context.Background())
	f := &feed{tail, make(chan polled), stop, make(chan struct{})}
	go f.run(life, most)
	return f
}

func (f *feed) run(life context.Context, most int) {
	defer close(f.done)
	var p polled
	for {
		if p.err == nil { // else it is over, and whoever asks hears so again
			p.batches, p.err = f.tail.Poll(life, most)
		}
		select {
		case f.polled <- p:
		case <-life.Done():
			return
		}
	}
}

// close ends the tail.
func (f *feed) close() {
	f.stop()
	<-f.done
	f.tail.Close()
}
