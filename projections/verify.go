package projections

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Kinds of problems that a verification finds.
const (
	ProblemGap        = "gap"        // offsets are missing
	ProblemUnreadable = "unreadable" // a record is no envelope that this binary can read
	ProblemMisplaced  = "misplaced"  // record key, bucket and partition do not belong together
	ProblemChain      = "chain"      // an envelope follows one that is nowhere in the log before it
	ProblemCommand    = "command"    // commands are answered twice, out of order, or were never there
	ProblemWatermark  = "watermark"  // a low watermark claims that a command is answered which is not
	ProblemTime       = "time"       // a bucket's time runs back
	ProblemControl    = "control"    // a control position runs back, or names what the control log does not hold
	ProblemEvent      = "event"      // an event does not belong to its stream, bucket or envelope
	ProblemVersion    = "version"    // a link's versions are not dense from 1, or go on after its end
	ProblemOutcome    = "outcome"    // an outcome does not say what the events did
	ProblemID         = "id"         // two links have one id, or two leases one segment
	ProblemMore       = "more"       // there are more problems than are listed
)

// Problem is one thing in the log that no honest writer writes.
type Problem struct {
	Kind      string  `json:"kind"`
	Topic     string  `json:"topic,omitempty"`
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Bucket    *uint32 `json:"bucket,omitempty"` // nil: it could not be read, or it is about no single one
	Seq       uint64  `json:"seq,omitempty"`
	Detail    string  `json:"detail"`
}

// maxProblems is how many problems are listed; the rest is counted.
const maxProblems = 1000

// Verification reads event topics from their beginnings and keeps everything that is needed to judge each envelope: unlike
// the events.Checker of a reader it forgets nothing, so what it calls void is void and what it calls lost is lost. After a
// problem it goes on from what it found, as well as that can be done, so that the rest is verified too.
//
// The control topic comes first, then the partitions of the links' topic in any order, one at a time.
type Verification struct {
	Envelopes uint64    `json:"envelopes"` // read: accepted, void and lost
	Void      uint64    `json:"void"`
	Buckets   int       `json:"buckets"` // with an accepted envelope, of both streams
	Links     int       `json:"links"`   // that were ever created
	Problems  []Problem `json:"problems"`

	more       uint64
	hasControl bool
	controlSeq uint64   // of the control log's head
	ids        []uint64 // of all links
}

// NewVerification starts a verification.
func NewVerification() *Verification { return &Verification{Problems: []Problem{}} }

// Control starts the verification of the control stream's events.
func (v *Verification) Control(topic string) *Verifier {
	return v.verifier(topic, events.StreamControl, 0, 1)
}

// Partition starts the verification of one partition of the links' events.
func (v *Verification) Partition(topic string, partition int32, partitions int) *Verifier {
	return v.verifier(topic, events.StreamLink, partition, partitions)
}

// Finish judges what only all partitions together show.
func (v *Verification) Finish() {
	slices.Sort(v.ids)
	for i := 1; i < len(v.ids); i++ {
		if v.ids[i] == v.ids[i-1] {
			v.add(Problem{Kind: ProblemID, Detail: fmt.Sprintf("two links have the id %d", v.ids[i])})
		}
	}
	v.ids = nil
	if v.more > 0 {
		v.Problems = append(v.Problems, Problem{Kind: ProblemMore, Detail: fmt.Sprintf("%d more problems are not listed", v.more)})
	}
}

func (v *Verification) add(p Problem) {
	if len(v.Problems) == maxProblems {
		v.more++
		return
	}
	v.Problems = append(v.Problems, p)
}

// Verifier verifies one partition. It is not safe for concurrent use.
type Verifier struct {
	all        *Verification
	topic      string
	stream     string
	partition  int32
	partitions int
	next       int64
	buckets    map[uint32]*verifiedBucket
	answered   answered
	answers    answers
	missing    int64                   // 1 + the offset of the unanswered command that was last reported
	links      map[string]verifiedLink // by route key
	leased     map[uint32]uint64       // of the control stream: the first free id of a space
	codeKeys   uint32                  // of the control stream: versions of the permutation key
}

// verifiedBucket is a bucket's chain with what must not run back in it.
type verifiedBucket struct {
	fullChain
	commandOffset int64
	timeUS        int64
	controlSeq    uint64
}

func (v *Verification) verifier(topic, stream string, partition int32, partitions int) *Verifier {
	return &Verifier{all: v, topic: topic, stream: stream, partition: partition, partitions: partitions, buckets: map[uint32]*verifiedBucket{},
		answered: answered{later: map[int64]struct{}{}}, links: map[string]verifiedLink{}, leased: map[uint32]uint64{}}
}

// Add verifies the next record. It keeps no reference to its arguments.
func (v *Verifier) Add(offset int64, key, value []byte) {
	if offset != v.next {
		v.problem(ProblemGap, offset, nil, "the record before it should have offset %d and has not: records are missing from %d on", offset-1, v.next)
	}
	v.next = offset + 1
	e, err := events.DecodeEnvelope(value)
	if err != nil {
		v.problem(ProblemUnreadable, offset, nil, "%v", err)
		return
	}
	v.all.Envelopes++
	if !v.checkPlace(offset, e, key) {
		return
	}
	v.checkWatermark(offset, e)
	b := v.bucket(e.GetBucket())
	head, seq := b.Head(), b.Seq()
	switch b.next(e.GetSeq(), events.Hash(e.GetPrevHash()), e.Hash) {
	case envelopeVoid:
		v.all.Void++
		return
	case envelopeLost:
		v.problem(ProblemChain, offset, e, "it follows envelope %d with hash %x, which is nowhere in the log before it (the bucket's last one is %d, %x): an envelope was lost, moved or altered",
			e.GetSeq()-1, e.GetPrevHash()[:6], seq, head[:6])
		if b.Head() != e.Hash {
			return
		}
	}
	v.checkCommand(offset, e, b)
	v.checkStamp(offset, e, b)
	v.checkContent(offset, e)
}

// End closes the partition. eventEnd and commandEnd are the offsets after the last record of this partition and of its
// command topic; the command topic's end must have been asked for after the other.
func (v *Verifier) End(eventEnd, commandEnd int64) {
	if v.next != eventEnd {
		v.problem(ProblemGap, v.next, nil, "the log ends at %d, its records at %d", eventEnd, v.next)
	}
	if v.answered.highest > commandEnd {
		v.problem(ProblemCommand, v.next, nil, "the command at offset %d is answered, and the log of commands ends at %d", v.answered.highest-1, commandEnd)
	}
	for _, b := range v.buckets {
		if b.Seq() > 0 {
			v.all.Buckets++
		}
	}
	v.all.Links += len(v.links)
	if v.stream == events.StreamControl {
		v.all.hasControl, v.all.controlSeq = true, v.bucket(events.ControlBucket).Seq()
	}
	*v = Verifier{} // memory for the next partition
}

func (v *Verifier) problem(kind string, offset int64, e *events.Envelope, format string, args ...any) {
	p := Problem{Kind: kind, Topic: v.topic, Partition: v.partition, Offset: offset, Detail: fmt.Sprintf(format, args...)}
	if e != nil {
		bucket := e.GetBucket()
		p.Bucket, p.Seq = &bucket, e.GetSeq()
	}
	v.all.add(p)
}

func (v *Verifier) bucket(number uint32) *verifiedBucket {
	b := v.buckets[number]
	if b == nil {
		b = &verifiedBucket{commandOffset: -1}
		v.buckets[number] = b
	}
	return b
}

// checkPlace reports whether the envelope lies in a bucket of this partition.
func (v *Verifier) checkPlace(offset int64, e *events.Envelope, key []byte) bool {
	bucket := e.GetBucket()
	own := bucket < events.Buckets+uint32(v.partitions) && events.PartitionOf(bucket, v.partitions) == v.partition
	if v.stream == events.StreamControl {
		own = bucket == events.ControlBucket || bucket == events.BadKeyBucket(0)
	}
	switch {
	case !own:
		v.problem(ProblemMisplaced, offset, e, "bucket %d does not belong to this partition", bucket)
	case !bytes.Equal(key, events.BucketKey(bucket)):
		v.problem(ProblemMisplaced, offset, e, "the record key is %x, of bucket %d it would be %x", key, bucket, events.BucketKey(bucket))
	}
	return own
}

// checkWatermark: every command below L must be answered by an accepted envelope that comes before, whoever says L.
func (v *Verifier) checkWatermark(offset int64, e *events.Envelope) {
	low := e.GetLowWatermark()
	if low <= v.answered.low {
		return
	}
	if missing := v.answered.low + 1; missing != v.missing {
		v.missing = missing
		v.problem(ProblemWatermark, offset, e, "its low watermark is %d, and no envelope before it answers the command at offset %d", low, v.answered.low)
	}
	v.answered.skip(min(low, v.answered.highest))
}

func (v *Verifier) checkCommand(offset int64, e *events.Envelope, b *verifiedBucket) {
	command := e.GetCommandOffset()
	fresh := v.answered.take(command)
	v.answers.take(command, e.GetCommandId())
	switch {
	case len(e.GetCommandId()) != 16:
		v.problem(ProblemCommand, offset, e, "its command's id has %d bytes", len(e.GetCommandId()))
	case !fresh:
		v.problem(ProblemCommand, offset, e, "the command at offset %d is answered twice", command)
	case command <= b.commandOffset:
		v.problem(ProblemCommand, offset, e, "it answers the command at offset %d after the one at %d", command, b.commandOffset)
	}
	b.commandOffset = max(b.commandOffset, command)
}

func (v *Verifier) checkStamp(offset int64, e *events.Envelope, b *verifiedBucket) {
	s := e.GetStamp()
	if e.GetOutcome().GetError() != events.ErrorCommandExpired {
		if s.GetTimeUs() < b.timeUS {
			v.problem(ProblemTime, offset, e, "its time lies %d µs before that of an envelope before it", b.timeUS-s.GetTimeUs())
		}
		b.timeUS = max(b.timeUS, s.GetTimeUs())
	}
	switch {
	case s.GetControlSeq() < b.controlSeq:
		v.problem(ProblemControl, offset, e, "it was decided at control position %d, an envelope before it at %d", s.GetControlSeq(), b.controlSeq)
	case v.all.hasControl && s.GetControlSeq() > v.all.controlSeq:
		v.problem(ProblemControl, offset, e, "it was decided at control position %d, and the control log ends at %d", s.GetControlSeq(), v.all.controlSeq)
	}
	b.controlSeq = max(b.controlSeq, s.GetControlSeq())
}

// verifiedLink is what is remembered of a link.
type verifiedLink struct {
	id      uint64
	version uint64
	deleted bool
}

func linkKey(ref *pb.LinkRef) string { return events.RouteKey(ref.GetNamespace(), ref.GetCode()) }
