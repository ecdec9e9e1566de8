package handler

import (
	"context"
	"strings"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// modelLedger is a bucket's worst case: an outcome depends on all that was accepted in the bucket, and on what was drawn.
type modelLedger struct {
	broken  variant
	nonces  uint32
	seen    map[uint32][]string
	answers map[answerKey]string
}

type answerKey struct {
	bucket uint32
	key    string
}

func (l *modelLedger) begin() overlay {
	return &modelOverlay{l, map[uint32][]string{}, map[answerKey]string{}}
}

type modelOverlay struct {
	*modelLedger
	added   map[uint32][]string
	answers map[answerKey]string
}

// sight is what a decision in the bucket reads.
func (o *modelOverlay) sight(bucket uint32) string {
	var list []string
	for b := range uint32(modelBuckets) {
		if b == bucket || o.broken.crossBuckets {
			list = append(list, o.seen[b]...)
			if !o.broken.blind {
				list = append(list, o.added[b]...)
			}
		}
	}
	return strings.Join(list, " ")
}

func (o *modelOverlay) stamp(_ context.Context, r eventlog.Record, bucket uint32, _ error, _ events.Head) (*pb.Envelope, decision, error) {
	command := &pb.LinkCommand{}
	if err := command.UnmarshalVT(r.Value); err != nil {
		return nil, nil, err
	}
	nonce := o.nonces >> (4 * r.Offset) & 15
	key := answerKey{bucket, command.GetRequest().GetKey()}
	stored, repeated := o.modelLedger.answers[key]
	if !repeated && !o.broken.blind {
		stored, repeated = o.answers[key]
	}
	out := &pb.Outcome{Code: envelopeName(r.Offset, nonce), Detail: o.sight(bucket)}
	if repeated && !o.broken.noKeys {
		out.Code, out.Replayed = stored, true
	}
	e := &pb.Envelope{CommandId: command.GetCommandId(), Request: command.GetRequest(), Stamp: &pb.Stamp{CandidateId: uint64(nonce)}}
	return e, func() commands.Decision { return commands.Decision{Outcome: out} }, nil
}

func (o *modelOverlay) apply(e *pb.Envelope) error {
	bucket := e.GetBucket()
	o.added[bucket] = append(o.added[bucket], envelopeName(e.GetCommandOffset(), uint32(e.GetStamp().GetCandidateId())))
	if !e.GetOutcome().GetReplayed() {
		o.answers[answerKey{bucket, e.GetRequest().GetKey()}] = e.GetOutcome().GetCode()
	}
	return nil
}

func (o *modelOverlay) commit(*place) error {
	for bucket, list := range o.added {
		o.seen[bucket] = append(o.seen[bucket], list...)
	}
	for key, answer := range o.answers {
		o.modelLedger.answers[key] = answer
	}
	return nil
}

func (o *modelOverlay) drop() {}
