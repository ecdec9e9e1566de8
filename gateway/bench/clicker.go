package bench

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway"
)

// clicker sends clicks to the log at a rate, as a redirect node does: the background that a redirect node makes for itself,
// for servers that make none.
type clicker struct {
	log      *eventlog.Log // nil: there is no log that it could send to
	appender *eventlog.Appender
	recorder *gateway.ClickRecorder
}

func newClicker(ctx context.Context, t *target) (*clicker, error) {
	if t.own == nil {
		return &clicker{}, nil // what was running before shall not get clicks that nobody made
	}
	quiet := slog.New(slog.DiscardHandler)
	log, err := eventlog.Open(eventlog.Config{Brokers: strings.Split(t.kafka, ",")}, quiet)
	if err != nil {
		return nil, err
	}
	c := &clicker{log: log}
	count, err := log.Partitions(ctx, eventlog.Clicks)
	if err == nil {
		c.appender, err = log.NewAppender(eventlog.Clicks)
	}
	if err == nil {
		c.recorder, err = gateway.NewClickRecorder(c.appender, gateway.ClickConfig{Node: "bench", Partitions: count}, quiet)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *clicker) close() (err error) {
	if c.recorder != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		err = c.recorder.Close(ctx)
	}
	if c.appender != nil {
		c.appender.Close()
	}
	if c.log != nil {
		c.log.Close()
	}
	return err
}

// start sends so many clicks a second until the result is called.
func (c *clicker) start(perSecond float64) (stop func()) {
	if c.recorder == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.send(ctx, perSecond) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (c *clicker) send(ctx context.Context, perSecond float64) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	click := gateway.Click{Namespace: "bench.example", Code: []byte("0000000"), UserAgent: []byte(nodeAgent), Address: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Status: 302, LinkID: 1, Version: 1}
	began, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			click.TimeUS = now.UnixMicro()
			for due := int(now.Sub(began).Seconds() * perSecond); sent < due; sent++ {
				c.recorder.Record(&click)
			}
		}
	}
}
