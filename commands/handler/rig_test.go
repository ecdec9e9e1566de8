package handler

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

const (
	partitions = 8
	site       = "s.example"
)

// rig is a log on a real broker, with a control writer at work, in which a test plays the writers of links.
type rig struct {
	t       *testing.T
	log     *eventlog.Log
	control *Control
	now     func() time.Time
	sender  *eventlog.Appender
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func newRig(t *testing.T, addr string) *rig {
	log, err := eventlog.Open(eventlog.Config{Brokers: []string{addr}}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(log.Close)
	if err := log.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, log: log, now: time.Now}
	r.control = newControl(log, quiet(), time.Now)
	h := &Handler{cfg: Config{Log: log, Logger: quiet(), Now: time.Now}}
	writer := h.controlWorker()
	writer.set(true)
	done := make(chan struct{}, 2)
	go func() { _ = writer.run(ctx); done <- struct{}{} }()
	go func() { _ = r.control.run(ctx); done <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-done; <-done })
	for _, c := range []*pb.ControlCommand{
		{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: site, IsDefault: true}}},
		{Kind: &pb.ControlCommand_AddPermutationKey{AddPermutationKey: &pb.PermutationKey{Version: 1, Key: make([]byte, 16)}}},
	} {
		if e, err := r.control.Propose(ctx, c); err != nil || e.GetOutcome().GetError() != "" {
			t.Fatal(e, err)
		}
	}
	if r.sender, err = log.NewAppender(eventlog.CommandsLink); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.sender.Close)
	return r
}

// process is one process's commands role: its own store, one partition of it at work.
func (r *rig) process(number int32) *worker {
	w, closed := r.processOn(vfs.NewMem(), number)
	r.t.Cleanup(closed)
	return w
}

// processOn is a process whose store lies on fs. On a busy machine a lease takes longer than a user would wait.
func (r *rig) processOn(fs vfs.FS, number int32) (w *worker, closed func()) {
	r.t.Helper()
	s, err := openStore("", partitions, &pebble.Options{FS: fs}, disk.Reports{})
	if err != nil {
		r.t.Fatal(err)
	}
	h := &Handler{cfg: Config{Log: r.log, Logger: quiet(), Now: r.now, Partitions: partitions}, store: s, control: r.control}
	if w, err = h.linkWorker(number); err != nil {
		r.t.Fatal(err)
	}
	w.ledger.(*linkLedger).firstWait = 10 * time.Second
	return w, func() { _ = s.db.Close() }
}

// write lets a worker write until the test ends or stop is called, which returns what ended it.
func (r *rig) write(w *worker) (stop func() error) {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	w.set(true)
	go func() { done <- w.run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	r.t.Cleanup(func() { _ = stop() })
	return stop
}

func (r *rig) send(partition int32, key, value []byte) int64 {
	r.t.Helper()
	return r.append(partition, eventlog.Record{Key: key, Value: value})
}

func (r *rig) append(partition int32, record eventlog.Record) int64 {
	r.t.Helper()
	offsets := make(chan int64, 1)
	r.sender.AppendAsync(r.t.Context(), partition, record, func(offset int64, err error) {
		if err != nil {
			r.t.Error(err)
		}
		offsets <- offset
	})
	return <-offsets
}

func create(owner, key, code string) *pb.LinkCommand {
	c := &pb.LinkCommand{SchemaVersion: 1, CommandId: make([]byte, 16), TimeUs: time.Now().UnixMicro(), Actor: "test", Namespace: site, Code: code,
		Request: &pb.RequestRef{Owner: owner, Key: key},
		Kind:    &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: &pb.LinkContent{Target: "https://example.com/" + key}}}}
	_, _ = rand.Read(c.CommandId)
	c.Request.BodyHash = commands.BodyHash(c)
	return c
}

// command sends a command where it belongs.
func (r *rig) command(c *pb.LinkCommand) (partition int32, offset int64) {
	bucket := commands.BucketFor(c)
	value, err := c.MarshalVT()
	if err != nil {
		r.t.Fatal(err)
	}
	partition = events.PartitionOf(bucket, partitions)
	return partition, r.send(partition, events.BucketKey(bucket), value)
}

// accepted returns the accepted envelopes of a partition, once there are n.
func (r *rig) accepted(number int32, n int) (list []*events.Envelope, checker *events.Checker) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	tail, err := r.log.NewTail(eventlog.EventsLink, map[int32]int64{number: 0})
	if err != nil {
		r.t.Fatal(err)
	}
	defer tail.Close()
	checker = events.NewChecker(eventlog.EventsLink, number, partitions)
	for len(list) < n {
		batches, err := tail.Poll(ctx, 0)
		if err != nil {
			r.t.Fatalf("%d of %d envelopes: %v", len(list), n, err)
		}
		for _, b := range batches {
			for _, rec := range b.Records {
				e, ok, err := checker.Check(rec.Offset, rec.Key, rec.Value)
				if err != nil {
					r.t.Fatal(err)
				}
				if ok {
					list = append(list, e)
				}
			}
		}
	}
	return list, checker
}

// keyed finds a request key whose generated create routes to the partition.
func keyed(number int32, n int) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("k%d-%d", n, i)
		if events.PartitionOf(commands.BucketFor(create("ann", key, "")), partitions) == number {
			return key
		}
	}
}

// dump is the whole confirmed content of a store but for what differs between processes.
func dump(t *testing.T, w *worker) string {
	var out bytes.Buffer
	it, err := w.ledger.(*linkLedger).store.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for it.First(); it.Valid(); it.Next() {
		if it.Key()[0] != prefixJournal && it.Key()[0] != prefixPlace {
			fmt.Fprintf(&out, "%x=%x\n", it.Key(), it.Value())
		}
	}
	_ = it.Close()
	return out.String()
}
