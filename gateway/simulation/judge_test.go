//go:build synctests

package simulation

import (
	"bytes"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// judge decides every command of a partition again, bucket by bucket in the order of the accepted envelopes, on a state of
// its own, and compares what comes out with what the envelope says.
type judge struct {
	t         *truth
	partition int32
	answered  map[int64]accepted // by command offset
	done      map[uint32]int     // envelopes judged, by bucket
	links     map[string]*pb.Link
	requests  map[string]*pb.StoredRequest
	twins     map[string]string // fingerprint → route key
}

func newJudge(t *truth, partition int32) judge {
	return judge{t: t, partition: partition, answered: map[int64]accepted{}, done: map[uint32]int{}, links: map[string]*pb.Link{},
		requests: map[string]*pb.StoredRequest{}, twins: map[string]string{}}
}

// judgeAll judges what is new. The log is at rest, and t.mu is held.
func (j *judge) judgeAll() error {
	for bucket, list := range j.t.buckets {
		if events.PartitionOf(bucket, partitions) != j.partition {
			continue
		}
		for _, a := range list[j.done[bucket]:] {
			if err := j.judge(a); err != nil {
				return fmt.Errorf("envelope %d/%d: %w", bucket, a.GetSeq(), err)
			}
		}
		j.done[bucket] = len(list)
	}
	for offset := range j.t.commands[j.partition] {
		if _, ok := j.answered[int64(offset)]; !ok {
			return fmt.Errorf("the command at offset %d of partition %d has no accepted envelope: it is lost", offset, j.partition)
		}
	}
	return nil
}

func (j *judge) judge(a accepted) error {
	offset := a.GetCommandOffset()
	if twice, ok := j.answered[offset]; ok {
		return fmt.Errorf("command %d is answered again, as in %d/%d", offset, twice.GetBucket(), twice.GetSeq())
	}
	j.answered[offset] = a
	if offset >= int64(len(j.t.commands[j.partition])) {
		return fmt.Errorf("it answers command %d, and the log of commands ends at %d", offset, len(j.t.commands[j.partition]))
	}
	record := j.t.commands[j.partition][offset]
	command := &pb.LinkCommand{}
	if err := command.UnmarshalVT(record.Value); err != nil {
		return fmt.Errorf("decoding command %d: %w", offset, err)
	}
	if !bytes.Equal(command.GetCommandId(), a.GetCommandId()) || !proto.Equal(command.GetRequest(), a.GetRequest()) || !bytes.Equal(record.Key, events.BucketKey(a.GetBucket())) {
		return fmt.Errorf("command %d is another than the one that it answers", offset)
	}
	c := commands.LinkCommand{LinkCommand: command, Bucket: a.GetBucket(), Stamp: a.GetStamp()}
	if err := j.stamp(c, a); err != nil {
		return fmt.Errorf("the stamp of command %d: %w", offset, err)
	}
	s := j.load(c, a)
	d := commands.Decide(s, c)
	if !proto.Equal(d.Outcome, a.GetOutcome()) || !sameEvents(d.Events, a.GetEvents()) {
		return fmt.Errorf("command %d leads to %v %v in the state that it met, and the envelope says %v %v", offset, d.Outcome, d.Events, a.GetOutcome(), a.GetEvents())
	}
	j.fold(s, a)
	return nil
}

// stamp judges the verdicts by the control state that the stamp names, and the clocks as far as they show.
func (j *judge) stamp(c commands.LinkCommand, a accepted) error {
	s := c.Stamp
	sent, stamped := time.UnixMicro(c.GetTimeUs()), time.UnixMicro(s.GetTimeUs())
	apart := stamped.Sub(sent) > 24*time.Hour || stamped.Sub(sent) < -time.Minute
	switch s.GetFailed() {
	case commands.CodeCommandExpired:
		if a.GetOutcome().GetError() != commands.CodeCommandExpired {
			if before := j.before(a); before != s.GetTimeUs() {
				return fmt.Errorf("a repeat that expired carries the time %v, the bucket's is %v", stamped, time.UnixMicro(before))
			}
		} else if !apart {
			return fmt.Errorf("the command expired at %v, sent at %v", stamped, sent)
		}
		return nil
	case commands.CodeUnavailable:
		return nil
	}
	if stamped.Sub(sent) < -time.Minute {
		return fmt.Errorf("decided at %v, sent at %v: it was expired", stamped, sent)
	}
	if before := j.before(a); stamped.Sub(sent) > 24*time.Hour && before < s.GetTimeUs() {
		return fmt.Errorf("decided at %v, sent at %v, and the bucket's time was %v: it was expired", stamped, sent, time.UnixMicro(before))
	} else if s.GetTimeUs() < before {
		return fmt.Errorf("the bucket's time runs back to %v from %v", stamped, time.UnixMicro(before))
	}
	if s.GetControlSeq() < c.GetControlSeq() || s.GetControlSeq() > uint64(len(j.t.control)) {
		return fmt.Errorf("control position %d: the command names %d, the control log ends at %d", s.GetControlSeq(), c.GetControlSeq(), len(j.t.control))
	}
	want := &pb.Stamp{TimeUs: s.GetTimeUs(), CandidateId: s.GetCandidateId(), CandidateCode: s.GetCandidateCode()}
	if s.GetControlSeq() > 0 {
		commands.Judge(want, c.LinkCommand, j.t.control[s.GetControlSeq()-1])
	}
	if !proto.Equal(want, s) {
		return fmt.Errorf("it says %v, the control state says %v", s, want)
	}
	return nil
}

// before returns the bucket's time before an envelope.
func (j *judge) before(a accepted) (timeUS int64) {
	for _, earlier := range j.t.buckets[a.GetBucket()][:a.GetSeq()-1] {
		if earlier.GetOutcome().GetError() != events.ErrorCommandExpired {
			timeUS = max(timeUS, earlier.GetStamp().GetTimeUs())
		}
	}
	return timeUS
}

func (j *judge) load(c commands.LinkCommand, a accepted) commands.State {
	code := c.GetCode()
	if code == "" {
		code = c.Stamp.GetCandidateCode()
	}
	s := commands.State{Link: j.links[events.RouteKey(c.GetNamespace(), code)], Request: j.requests[keptUnder(a)]}
	if print := commands.Fingerprint(c.LinkCommand); print != nil {
		s.Twin = j.links[j.twins[string(print)]]
	}
	return s
}

// keptUnder names the request of an envelope in its bucket's state.
func keptUnder(a accepted) string {
	return fmt.Sprintf("%d/%s", a.GetBucket(), requestID(a.GetRequest().GetOwner(), a.GetRequest().GetKey()))
}

func (j *judge) fold(s commands.State, a accepted) {
	next := commands.Evolve(s, a.Envelope.Envelope)
	if next.Request != s.Request {
		j.requests[keptUnder(a)] = next.Request
	}
	if len(a.GetEvents()) == 0 {
		return
	}
	ref := events.LinkOf(a.GetEvents()[0])
	route := events.RouteKey(ref.GetNamespace(), ref.GetCode())
	j.links[route] = next.Link
	if print := next.Link.GetFingerprint(); s.Link == nil && len(print) > 0 {
		j.twins[string(print)] = route
	}
}

func sameEvents(a, b []*pb.Event) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !proto.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
