package gateway

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/loopback"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Through the real client and broker: clicks that come while the broker is away wait, and all arrive, none twice as the
// sink counts and none out of order.
func TestClickRecorderOutlivesTheBroker(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	config := eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: loopback.FreeAddr(t)}
	broker, err := eventlog.StartEmbedded(config, logger)
	if err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.Open(eventlog.Config{Brokers: []string{config.Addr}, DeliveryTimeout: time.Second}, logger)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := log.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	appender, err := log.NewAppender(eventlog.Clicks)
	if err != nil {
		t.Fatal(err)
	}
	defer appender.Close()
	recorder := newClickTestRecorder(t, appender, ClickConfig{Node: "n", Partitions: 4, FlushEvery: 5 * time.Millisecond})
	record := func(n int) {
		for i := range n {
			recorder.Record(testClick(i))
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	record(2000)
	if err := broker.Close(); err != nil {
		t.Fatal(err)
	}
	record(2000)
	time.Sleep(1500 * time.Millisecond) // longer than a delivery may take
	if broker, err = eventlog.StartEmbedded(config, logger); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = broker.Close() }()
	record(2000)
	if err := recorder.Close(ctx); err != nil {
		t.Fatal(err, recorder.Status())
	}
	if kept := checkDense(t, readClickBlocks(ctx, t, log), 0); kept != 6000 {
		t.Errorf("%d clicks, %+v", kept, recorder.Status())
	}
}

func readClickBlocks(ctx context.Context, t *testing.T, log *eventlog.Log) (blocks []*pb.ClickBlock) {
	t.Helper()
	ends, err := log.Ends(ctx, eventlog.Clicks)
	if err != nil {
		t.Fatal(err)
	}
	from, left := map[int32]int64{}, int64(0)
	for p, end := range ends {
		from[int32(p)] = 0
		left += end
	}
	tail, err := log.NewTail(eventlog.Clicks, from)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	for left > 0 {
		batches, err := tail.Poll(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, batch := range batches {
			for _, rec := range batch.Records {
				block := &pb.ClickBlock{}
				if err := block.UnmarshalVT(rec.Value); err != nil || block.GetPartition() != uint32(batch.Partition) {
					t.Fatalf("%v, block of partition %d in %d", err, block.GetPartition(), batch.Partition)
				}
				blocks = append(blocks, block)
				left--
			}
		}
	}
	return blocks
}
