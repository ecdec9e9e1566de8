package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
)

// logReader is the log for commands that answer from it alone: from a topic's beginning to the end that it has when the
// command starts.
type logReader struct {
	*eventlog.Log
	brokers    string
	partitions int // of the links' events
}

const (
	// brokerWait is how long a command waits for brokers that do not answer.
	brokerWait = 5 * time.Second
	// stallWait is how long a command waits for records that the log has.
	stallWait = 15 * time.Second
)

func openReader(ctx context.Context, s settings) (*logReader, error) {
	log, err := eventlog.Open(s.kafka(), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, usageError{err}
	}
	r := &logReader{Log: log, brokers: s.GetString(setKafka)}
	if err := r.meet(ctx); err != nil {
		log.Close()
		return nil, err
	}
	return r, nil
}

func (r *logReader) meet(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, brokerWait)
	defer cancel()
	err := r.WaitReady(wait, 1)
	if err == nil {
		r.partitions, err = r.Partitions(wait, eventlog.EventsLink)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, eventlog.ErrNoTopic):
		return fmt.Errorf("the broker at %s has no Hoplog topics: start `hoplog dev`, or a commands process, once", r.brokers)
	}
	return fmt.Errorf("no Kafka broker answers at %s: is `hoplog dev` running? Name the brokers with --kafka (%w)", r.brokers, err)
}

// records calls f for the records [from, to) of a partition. Records are lent for the call.
func (r *logReader) records(ctx context.Context, topic string, partition int32, from, to int64, f func(*eventlog.Record) error) error {
	if from >= to {
		return nil
	}
	tail, err := r.NewTail(topic, map[int32]int64{partition: from})
	if err != nil {
		return err
	}
	defer tail.Close()
	for next := from; next < to; {
		batches, err := r.poll(ctx, tail)
		if err != nil {
			return fmt.Errorf("reading %s partition %d from offset %d: %w", topic, partition, next, err)
		}
		for _, b := range batches {
			for i := range b.Records {
				if b.Records[i].Offset >= to {
					return nil
				}
				next = b.Records[i].Offset + 1
				if err := f(&b.Records[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *logReader) poll(ctx context.Context, tail *eventlog.Tail) ([]eventlog.Batch, error) {
	wait, cancel := context.WithTimeout(ctx, stallWait)
	defer cancel()
	batches, err := tail.Poll(wait, 0)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("the broker at %s has sent nothing for %s (%w)", r.brokers, stallWait, errors.Join(tail.LastError(), err))
	}
	return batches, err
}

// envelopes calls f for the accepted envelopes below offset end of a partition, as the chain rule gives them to any reader.
func (r *logReader) envelopes(ctx context.Context, topic string, partition int32, partitions int, end int64, f func(*events.Envelope) error) error {
	checker := events.NewChecker(topic, partition, partitions)
	return r.records(ctx, topic, partition, 0, end, func(rec *eventlog.Record) error {
		e, accepted, err := checker.Check(rec.Offset, rec.Key, rec.Value)
		if err != nil {
			return fmt.Errorf("%w; `hoplog audit verify` shows everything that is wrong", err)
		}
		if !accepted {
			return nil
		}
		return f(e)
	})
}

// control folds the control log; nil when it is empty.
func (r *logReader) control(ctx context.Context) (state *commands.Control, err error) {
	ends, err := r.Ends(ctx, eventlog.EventsControl)
	if err != nil {
		return nil, err
	}
	err = r.envelopes(ctx, eventlog.EventsControl, 0, 1, ends[0], func(e *events.Envelope) error {
		if e.GetBucket() == events.ControlBucket {
			state = commands.EvolveControl(state, e.Envelope)
		}
		return nil
	})
	return state, err
}

// find returns the domain and code that a LINK argument names, as the control log has the domain.
func (r *logReader) find(ctx context.Context, name linkName) (linkName, error) {
	state, err := r.control(ctx)
	if err != nil {
		return name, err
	}
	domain := state.Resolve(name.domain)
	if name.domain == "" {
		domain = state.DefaultDomain()
	}
	switch {
	case domain != nil:
		return linkName{domain.GetNamespace(), name.code}, nil
	case name.domain == "":
		return name, errors.New("there is no default short domain yet: name the link as DOMAIN/CODE")
	}
	return name, fmt.Errorf("the log knows no short domain %s", name.domain)
}

// bucket calls f for every accepted envelope of one bucket.
func (r *logReader) bucket(ctx context.Context, bucket uint32, told *progress, f func(*events.Envelope) error) error {
	ends, err := r.Ends(ctx, eventlog.EventsLink)
	if err != nil {
		return err
	}
	partition := events.PartitionOf(bucket, r.partitions)
	told.begin("reading the log", ends[partition])
	defer told.end()
	return r.envelopes(ctx, eventlog.EventsLink, partition, r.partitions, ends[partition], func(e *events.Envelope) error {
		told.step()
		if e.GetBucket() != bucket {
			return nil
		}
		return f(e)
	})
}
