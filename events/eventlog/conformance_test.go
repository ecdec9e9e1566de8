package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// One suite, two brokers: what the embedded broker promises, a real Kafka does, and the other way round.
func TestConformance(t *testing.T) {
	onBoth(t, func(t *testing.T, b broker) {
		l := open(t, b.Addr())
		t.Run("topics", func(t *testing.T) { topics(t, l) })
		t.Run("append confirms", func(t *testing.T) { appendConfirms(t, l) })
		t.Run("foreign offset", func(t *testing.T) { foreignOffset(t, l) })
		t.Run("async order", func(t *testing.T) { asyncOrder(t, l) })
		t.Run("big records", func(t *testing.T) { bigRecords(t, l) })
		t.Run("round trip", func(t *testing.T) { roundTrip(t, l) })
		t.Run("out of range", func(t *testing.T) { outOfRange(t, l) })
		t.Run("unknown topic", func(t *testing.T) { unknownTopic(t, l) })
		t.Run("membership", func(t *testing.T) { membership(t, l) })
		t.Run("takeover", func(t *testing.T) { takeover(t, l, b.Addr()) })
		t.Run("restart", func(t *testing.T) { restart(t, l, b) })
		t.Run("frozen broker", func(t *testing.T) { frozenBroker(t, l, b) })
		t.Run("broker away", func(t *testing.T) { brokerAway(t, l, b) })
	})
}

func topics(t *testing.T, l *eventlog.Log) {
	ctx := soon(t)
	// given topics that exist as planned, when they are ensured again, then nothing happens
	if err := l.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	infos, err := l.Topics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range infos {
		names = append(names, i.Topic)
		if i.Partitions != len(i.Ends) || len(i.Starts) != len(i.Ends) {
			t.Errorf("%s: %d partitions, %d starts, %d ends", i.Topic, i.Partitions, len(i.Starts), len(i.Ends))
		}
		want := map[string]string{"cleanup.policy": "delete", "retention.bytes": "-1", "message.timestamp.type": "CreateTime",
			"unclean.leader.election.enable": "false", "min.insync.replicas": "1"}
		if i.Topic == eventlog.EventsLink || i.Topic == eventlog.EventsControl || i.Topic == eventlog.Sink {
			want["retention.ms"] = "-1"
		}
		for k, v := range want {
			if i.Settings[k] != v {
				t.Errorf("%s: %s is %q, want %q", i.Topic, k, i.Settings[k], v)
			}
		}
	}
	if !slices.Equal(names, eventlog.TopicNames()) {
		t.Errorf("topics %v, want %v", names, eventlog.TopicNames())
	}
	// when another number of partitions is wanted, then it is refused, naming all four
	err = l.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: 8})
	var refused *eventlog.TopicSettingsError
	if !errors.Is(err, eventlog.ErrTopicSettings) || !errors.As(err, &refused) {
		t.Fatalf("8 partitions: %v", err)
	}
	if *refused != (eventlog.TopicSettingsError{Topic: eventlog.CommandsLink, Setting: "partitions", Want: "8", Found: "4"}) {
		t.Errorf("refused with %+v", *refused)
	}
	for _, bad := range []int{0, 3, 8192} {
		if err := l.EnsureTopics(ctx, eventlog.TopicPlan{Partitions: bad}); err == nil {
			t.Errorf("%d partitions were accepted", bad)
		}
	}
	if n, err := l.Partitions(ctx, eventlog.EventsLink); n != 4 || err != nil {
		t.Errorf("partitions %d, %v", n, err)
	}
}

// end is where a partition ends now.
func end(t testing.TB, l *eventlog.Log, topic string, partition int32) int64 {
	t.Helper()
	ends, err := l.Ends(soon(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	return ends[partition]
}

func appendConfirms(t *testing.T, l *eventlog.Log) {
	a := appender(t, l, eventlog.EventsLink)
	ctx := soon(t)
	expect := end(t, l, eventlog.EventsLink, 0)
	for n := 1; n <= 200; n *= 3 { // 1, 3, 9, … records in one append
		if err := a.Append(ctx, 0, values("v", n), expect); err != nil {
			t.Fatalf("%d records: %v", n, err)
		}
		expect += int64(n)
		if got := end(t, l, eventlog.EventsLink, 0); got != expect {
			t.Fatalf("after %d records the log ends at %d, want %d", n, got, expect)
		}
	}
	if err := a.Append(ctx, 0, nil, expect); err != nil {
		t.Errorf("nothing to append: %v", err)
	}
}

func foreignOffset(t *testing.T, l *eventlog.Log) {
	// given two writers that believe in the same end
	ctx := soon(t)
	first, second := appender(t, l, eventlog.EventsLink), appender(t, l, eventlog.EventsLink)
	expect := end(t, l, eventlog.EventsLink, 1)
	// when the first appends, then it is confirmed
	if err := first.Append(ctx, 1, values("first", 3), expect); err != nil {
		t.Fatal(err)
	}
	// when the second appends, then it is told where its record landed, and is dead
	err := second.Append(ctx, 1, values("second", 2), expect)
	var foreign *eventlog.ForeignOffsetError
	if !errors.Is(err, eventlog.ErrForeignOffset) || !errors.As(err, &foreign) {
		t.Fatalf("second writer: %v", err)
	}
	want := eventlog.ForeignOffsetError{Topic: eventlog.EventsLink, Partition: 1, Want: expect, Got: expect + 3}
	if *foreign != want {
		t.Errorf("told %+v, want %+v", *foreign, want)
	}
	if err := second.Append(ctx, 1, values("again", 1), expect+5); !errors.Is(err, eventlog.ErrAppenderDead) {
		t.Errorf("dead appender: %v", err)
	}
	answer := make(chan error, 1)
	second.AppendAsync(ctx, 1, values("again", 1)[0], func(_ int64, err error) { answer <- err })
	if err := <-answer; !errors.Is(err, eventlog.ErrAppenderDead) {
		t.Errorf("dead appender, async: %v", err)
	}
	// and the first, who did not see the second's records, is not confirmed wrongly
	if err := first.Append(ctx, 1, values("late", 1), expect+3); !errors.Is(err, eventlog.ErrForeignOffset) {
		t.Errorf("first writer after the second: %v", err)
	}
}

func asyncOrder(t *testing.T, l *eventlog.Log) {
	a := appender(t, l, eventlog.CommandsLink)
	ctx := soon(t)
	const n = 5000
	from := end(t, l, eventlog.CommandsLink, 2)
	answers := make(chan int64, n)
	for i := range n {
		a.AppendAsync(ctx, 2, eventlog.Record{Value: fmt.Append(nil, i)}, func(offset int64, err error) {
			if err != nil {
				t.Errorf("record %d: %v", i, err)
			}
			if offset != from+int64(i) {
				t.Errorf("record %d landed at %d, want %d", i, offset, from+int64(i))
			}
			answers <- offset
		})
	}
	for range n {
		select {
		case <-answers:
		case <-ctx.Done():
			t.Fatal("not every append was answered")
		}
	}
	got := read(t, tail(t, l, eventlog.CommandsLink, map[int32]int64{2: from}), 2, n)
	for i, r := range got {
		if string(r.Value) != fmt.Sprint(i) || r.Offset != from+int64(i) {
			t.Fatalf("record %d: value %s at %d", i, r.Value, r.Offset)
		}
	}
}

func bigRecords(t *testing.T, l *eventlog.Log) {
	ctx := soon(t)
	a := appender(t, l, eventlog.EventsLink)
	expect := end(t, l, eventlog.EventsLink, 3)
	big := make([]byte, 4<<20+100<<10) // does not compress
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	// given records of more than 4 MiB among small ones, when appended, then all are confirmed and read back
	recs := []eventlog.Record{{Value: []byte("a")}, {Value: big}, {Value: []byte("b")}, {Value: big}}
	if err := a.Append(ctx, 3, recs, expect); err != nil {
		t.Fatal(err)
	}
	for i, r := range read(t, tail(t, l, eventlog.EventsLink, map[int32]int64{3: expect}), 3, len(recs)) {
		if r.Offset != expect+int64(i) || !bytes.Equal(r.Value, recs[i].Value) {
			t.Errorf("record %d of %d bytes came back with %d bytes at %d", i, len(recs[i].Value), len(r.Value), r.Offset)
		}
	}
	// when a record is larger than its topic takes, then it is refused and not written
	err := a.Append(ctx, 3, []eventlog.Record{{Value: make([]byte, eventlog.MaxEventBytes)}}, eventlog.AnyOffset)
	if !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if got := end(t, l, eventlog.EventsLink, 3); got != expect+4 {
		t.Errorf("log ends at %d, want %d", got, expect+4)
	}
}

func roundTrip(t *testing.T, l *eventlog.Log) {
	at := time.UnixMilli(time.Now().UnixMilli()).Add(-time.Minute)
	sent := eventlog.Record{Key: []byte{0x12, 0x34}, Value: []byte("value"), Time: at,
		Headers: []eventlog.Header{{Key: "ce_id", Value: []byte("1")}, {Key: "ce_type", Value: []byte("x")}}}
	a := appender(t, l, eventlog.EventsControl)
	from := end(t, l, eventlog.EventsControl, 0)
	if err := a.Append(soon(t), 0, []eventlog.Record{sent, {Value: []byte{}}}, from); err != nil {
		t.Fatal(err)
	}
	got := read(t, tail(t, l, eventlog.EventsControl, map[int32]int64{0: from}), 0, 2)
	if r := got[0]; !bytes.Equal(r.Key, sent.Key) || !bytes.Equal(r.Value, sent.Value) || !r.Time.Equal(at) ||
		len(r.Headers) != 2 || r.Headers[0].Key != "ce_id" || string(r.Headers[1].Value) != "x" {
		t.Errorf("sent %+v, got %+v", sent, r)
	}
	if r := got[1]; len(r.Headers) != 0 || len(r.Value) != 0 || r.Time.IsZero() {
		t.Errorf("empty record came back as %+v", r)
	}
}

func outOfRange(t *testing.T, l *eventlog.Log) {
	a := appender(t, l, eventlog.Sink)
	if err := a.Append(soon(t), 0, values("s", 5), eventlog.AnyOffset); err != nil {
		t.Fatal(err)
	}
	last := end(t, l, eventlog.Sink, 0)
	// given a position beyond the log's end, when tailed, then it is an error that names all of it, again and again
	tl := tail(t, l, eventlog.Sink, map[int32]int64{0: last + 1})
	for range 2 {
		_, err := tl.Poll(soon(t), 0)
		var oor *eventlog.OutOfRangeError
		if !errors.Is(err, eventlog.ErrOutOfRange) || !errors.As(err, &oor) {
			t.Fatalf("beyond the end: %v", err)
		}
		want := eventlog.OutOfRangeError{Topic: eventlog.Sink, Partition: 0, Want: last + 1, Start: 0, End: last}
		if *oor != want {
			t.Errorf("got %+v, want %+v", *oor, want)
		}
	}
	// given a position at the log's end, when tailed, then it waits, and delivers what comes
	tl = tail(t, l, eventlog.Sink, map[int32]int64{0: last})
	if got, err := tl.Poll(within(t, 300*time.Millisecond), 0); !errors.Is(err, context.DeadlineExceeded) || len(got) > 0 {
		t.Fatalf("at the end: %v, %v", got, err)
	}
	if err := a.Append(soon(t), 0, values("next", 1), last); err != nil {
		t.Fatal(err)
	}
	if got := read(t, tl, 0, 1); got[0].Offset != last {
		t.Errorf("got offset %d, want %d", got[0].Offset, last)
	}
	// when closed, then polling says so
	tl.Close()
	if _, err := tl.Poll(within(t, time.Second), 0); !errors.Is(err, eventlog.ErrClosed) {
		t.Errorf("closed tail: %v", err)
	}
}

func unknownTopic(t *testing.T, l *eventlog.Log) {
	ctx := soon(t)
	if _, err := l.Ends(ctx, "hoplog.nothing"); !errors.Is(err, eventlog.ErrNoTopic) {
		t.Errorf("ends: %v", err)
	}
	if _, err := l.Partitions(ctx, "hoplog.nothing"); !errors.Is(err, eventlog.ErrNoTopic) {
		t.Errorf("partitions: %v", err)
	}
	err := appender(t, l, "hoplog.nothing").Append(ctx, 0, values("x", 1), 0)
	if err == nil {
		t.Error("append to nothing succeeded")
	}
}

// TestOtherSettings: a topic that somebody else made with other settings is refused by name.
func TestOtherSettings(t *testing.T) {
	onBoth(t, func(t *testing.T, b broker) {
		l := openBare(t, eventlog.Config{Brokers: []string{b.Addr()}})
		createTopic(t, b.Addr(), eventlog.EventsLink, 4, map[string]string{"retention.ms": "604800000"})
		err := l.EnsureTopics(soon(t), eventlog.TopicPlan{Partitions: 4})
		var refused *eventlog.TopicSettingsError
		if !errors.As(err, &refused) {
			t.Fatalf("a topic with retention: %v", err)
		}
		if refused.Topic != eventlog.EventsLink || refused.Setting != "retention.ms" || refused.Want != "-1" || refused.Found != "604800000" {
			t.Errorf("refused with %v", refused)
		}
	})
}
