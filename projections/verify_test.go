package projections_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

const verifyPartitions = 4

// entry is one record of a partition; its place in the slice is its offset unless the test says otherwise.
type entry struct {
	key, value []byte
	offset     int64
}

// history is one partition of the links' events as an honest writer writes it, and what the writer knows.
type history struct {
	t        *testing.T
	entries  []entry
	heads    map[uint32]*pb.Envelope // the last accepted of a bucket
	hashes   map[uint32]events.Hash
	commands int64
	nextID   uint64
	versions map[string]uint64
	refs     map[string]*pb.LinkRef
}

func newHistory(t *testing.T) *history {
	return &history{t: t, heads: map[uint32]*pb.Envelope{}, hashes: map[uint32]events.Hash{}, nextID: 1, versions: map[string]uint64{}, refs: map[string]*pb.LinkRef{}}
}

// envelope completes an envelope as the next of its bucket and appends it.
func (h *history) envelope(e *pb.Envelope) *pb.Envelope {
	h.t.Helper()
	hash := h.hashes[e.GetBucket()]
	e.SchemaVersion, e.Seq, e.PrevHash = events.SchemaVersion, h.heads[e.GetBucket()].GetSeq()+1, hash[:]
	e.CommandOffset, e.LowWatermark = h.commands, h.commands
	id := sha256.Sum256(fmt.Append(nil, h.commands))
	e.CommandId = id[:16]
	h.commands++
	if e.Stamp == nil {
		e.Stamp = &pb.Stamp{}
	}
	e.Stamp.TimeUs, e.Stamp.ControlSeq = 1000*h.commands, 3
	if e.Outcome == nil {
		e.Outcome = &pb.Outcome{}
	}
	h.heads[e.GetBucket()], h.hashes[e.GetBucket()] = e, h.append(e)
	return e
}

func (h *history) append(e *pb.Envelope) events.Hash {
	h.t.Helper()
	value, hash, err := events.EncodeEnvelope(e)
	if err != nil {
		h.t.Fatal(err)
	}
	h.entries = append(h.entries, entry{events.BucketKey(e.GetBucket()), value, int64(len(h.entries))})
	return hash
}

// codeIn returns the n-th code that routes to a partition.
func codeIn(partition int32, n int) string {
	for i := 0; ; i++ {
		code := fmt.Sprintf("code%d", i)
		if events.PartitionOf(events.BucketOf("s.example", code), verifyPartitions) == partition {
			if n--; n < 0 {
				return code
			}
		}
	}
}

func (h *history) create(code string) {
	ref := &pb.LinkRef{LinkId: h.nextID, Namespace: "s.example", Code: code, Owner: "ann"}
	h.nextID++
	h.refs[code], h.versions[code] = ref, 1
	h.envelope(&pb.Envelope{Bucket: events.BucketOf("s.example", code), Stamp: &pb.Stamp{CandidateId: ref.LinkId, CandidateCode: code},
		Events:  []*pb.Event{{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: ref, Content: &pb.LinkContent{Target: "https://a.example/"}}}}},
		Outcome: &pb.Outcome{Namespace: "s.example", Code: code, Version: 1}})
}

func (h *history) change(code string, action pb.StatusAction) {
	h.versions[code]++
	h.envelope(&pb.Envelope{Bucket: events.BucketOf("s.example", code),
		Events: []*pb.Event{{Kind: &pb.Event_LinkStatusChanged{LinkStatusChanged: &pb.LinkStatusChanged{
			Link: h.refs[code], Version: h.versions[code], Action: action}}}},
		Outcome: &pb.Outcome{Namespace: "s.example", Code: code, Version: h.versions[code]}})
}

// void appends what a late writer would have: an envelope beside the bucket's last one.
func (h *history) void(code string) {
	last := proto.Clone(h.heads[events.BucketOf("s.example", code)]).(*pb.Envelope)
	last.Actor, last.Events, last.Outcome = "a writer that woke up", nil, &pb.Outcome{Error: "not_found"}
	h.append(last)
}

// given is ten records: two links of one partition with changes, a refusal, a repeat, and a void envelope.
func given(t *testing.T) *history {
	h := newHistory(t)
	a, b := codeIn(1, 0), codeIn(1, 1)
	h.create(a)
	h.create(b)
	h.change(a, pb.StatusAction_DISABLE)
	h.void(a)
	h.change(a, pb.StatusAction_ENABLE)
	h.envelope(&pb.Envelope{Bucket: events.BucketOf("s.example", a), Outcome: &pb.Outcome{Error: "version_mismatch", Namespace: "s.example", Code: a}})
	h.envelope(&pb.Envelope{Bucket: events.BucketOf("s.example", a), Outcome: &pb.Outcome{Replayed: true, Namespace: "s.example", Code: a, Version: 2}})
	h.envelope(&pb.Envelope{Bucket: events.BadKeyBucket(1), Outcome: &pb.Outcome{Error: "invalid_request"}})
	h.change(b, pb.StatusAction_BAN)
	h.change(a, pb.StatusAction_DELETE)
	return h
}

// verify reads a partition after a control log of three envelopes.
func verify(t *testing.T, entries []entry, end, commandEnd int64) *projections.Verification {
	v := projections.NewVerification()
	verifyControl(t, v, controlHistory(t).entries)
	p := v.Partition("events", 1, verifyPartitions)
	for _, e := range entries {
		p.Add(e.offset, e.key, e.value)
	}
	p.End(end, commandEnd)
	v.Finish()
	return v
}

func controlHistory(t *testing.T) *history {
	h := newHistory(t)
	for _, event := range []*pb.Event{
		{Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{Domain: &pb.Domain{Namespace: "s.example", IsDefault: true}}}},
		{Kind: &pb.Event_SegmentLeased{SegmentLeased: &pb.SegmentLeased{Segment: &pb.Segment{Space: 7, From: 1, To: 100}}}},
		{Kind: &pb.Event_PermutationKeyAdded{PermutationKeyAdded: &pb.PermutationKeyAdded{Key: &pb.PermutationKey{Version: 1, Key: make([]byte, 16)}}}},
	} {
		h.envelope(&pb.Envelope{Events: []*pb.Event{event}})
	}
	return h
}

func verifyControl(t *testing.T, v *projections.Verification, entries []entry) {
	t.Helper()
	c := v.Control("control")
	for i, e := range entries {
		c.Add(int64(i), e.key, e.value)
	}
	c.End(int64(len(entries)), int64(len(entries)))
}

func kinds(v *projections.Verification) (list []string) {
	for _, p := range v.Problems {
		list = append(list, p.Kind)
	}
	return list
}

func TestVerifyFindsNothingInAnHonestLog(t *testing.T) {
	h := given(t)
	v := verify(t, h.entries, 10, 9)
	if len(v.Problems) > 0 {
		t.Fatalf("%+v", v.Problems)
	}
	if v.Envelopes != 13 || v.Void != 1 || v.Links != 2 || v.Buckets != 4 {
		t.Errorf("%+v", v)
	}
}

// rewrite changes one record's envelope; what follows it in its bucket knows nothing of it.
func rewrite(t *testing.T, entries []entry, i int, change func(e *pb.Envelope)) {
	t.Helper()
	e := &pb.Envelope{}
	if err := e.UnmarshalVT(entries[i].value); err != nil {
		t.Fatal(err)
	}
	change(e)
	value, err := e.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	entries[i] = entry{events.BucketKey(e.GetBucket()), value, entries[i].offset}
}

// without drops a record; the ones behind it close the gap, as in a log that was copied.
func without(entries []entry, i int) []entry {
	out := slices.Delete(slices.Clone(entries), i, i+1)
	for k := range out {
		out[k].offset = int64(k)
	}
	return out
}

func TestVerifyFindsDamage(t *testing.T) {
	for _, c := range []struct {
		name string
		when func(t *testing.T, e []entry) []entry
		then string // kinds of the problems, in order
	}{
		{"an envelope is gone", func(_ *testing.T, e []entry) []entry { return without(e, 4) }, "watermark chain version"},
		{"its record is gone, and its offset", func(_ *testing.T, e []entry) []entry { return slices.Delete(e, 4, 5) }, "gap watermark chain version"},
		{"an envelope is gone, the late writer's takes its place", func(_ *testing.T, e []entry) []entry { return without(e, 2) }, "chain version"},
		{"the first envelope of a bucket is gone", func(_ *testing.T, e []entry) []entry { return without(e, 1) }, "watermark chain version"},
		{"a refusal is gone", func(_ *testing.T, e []entry) []entry { return without(e, 5) }, "watermark chain"},
		{"the void envelope is gone", func(_ *testing.T, e []entry) []entry { return without(e, 3) }, ""},
		{"the last envelope is gone", func(_ *testing.T, e []entry) []entry { return e[:9] }, "gap"},
		{"two envelopes of a bucket are swapped", func(_ *testing.T, e []entry) []entry {
			e[4].value, e[5].value = e[5].value, e[4].value
			return e
		}, "watermark chain version"},
		{"an envelope stands there twice", func(_ *testing.T, e []entry) []entry {
			return append(e, entry{e[2].key, e[2].value, 10})
		}, ""},
		{"a byte of a target differs", func(t *testing.T, e []entry) []entry {
			rewrite(t, e, 0, func(e *pb.Envelope) { e.Events[0].GetLinkCreated().Content.Target = "https://b.example/" })
			return e
		}, "chain chain"},
		{"a byte of the previous hash differs", func(t *testing.T, e []entry) []entry {
			rewrite(t, e, 4, func(e *pb.Envelope) { e.PrevHash[7] ^= 1 })
			return e
		}, "chain chain"},
		{"a record is overwritten", func(_ *testing.T, e []entry) []entry { e[1].value = []byte("nonsense"); return e }, "unreadable watermark chain version"},
		{"a record is of a newer binary", func(t *testing.T, e []entry) []entry {
			rewrite(t, e, 1, func(e *pb.Envelope) { e.SchemaVersion = 9 })
			return e
		}, "unreadable watermark chain version"},
		{"a record key differs", func(_ *testing.T, e []entry) []entry { e[1].key = events.BucketKey(5); return e }, "misplaced"},
		{"an envelope of another partition", func(t *testing.T, e []entry) []entry {
			rewrite(t, e, 7, func(e *pb.Envelope) { e.Bucket = 5 })
			return e
		}, "misplaced watermark"},
		{"a bucket number that would wrap around", func(t *testing.T, e []entry) []entry {
			rewrite(t, e, 7, func(e *pb.Envelope) { e.Bucket = 1<<32 - 1 })
			return e
		}, "misplaced watermark"},
		{"a fork from nowhere", func(t *testing.T, e []entry) []entry {
			forged := e[4]
			forged.offset = 10
			e = append(e, forged)
			rewrite(t, e, 10, func(e *pb.Envelope) { e.PrevHash[0] ^= 1 })
			return e
		}, "chain"},
		{"the log lost its beginning", func(_ *testing.T, e []entry) []entry { return e[1:] }, "gap watermark chain version chain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries := c.when(t, given(t).entries)
			end := entries[len(entries)-1].offset + 1
			if c.name == "the last envelope is gone" {
				end = 10
			}
			v := verify(t, entries, end, 9)
			if got := strings.Join(kinds(v), " "); got != c.then {
				t.Errorf("found %q, wanted %q: %+v", got, c.then, v.Problems)
			}
		})
	}
}

// What a dishonest or broken writer writes, with a chain that holds: only the last record of the log is changed.
func TestVerifyFindsWhatNoWriterMayWrite(t *testing.T) {
	for _, c := range []struct {
		name string
		when func(e *pb.Envelope)
		then string
	}{
		{"a low watermark ahead of the truth", func(e *pb.Envelope) { e.LowWatermark = 9 }, "watermark"},
		{"a command that is answered already", func(e *pb.Envelope) { e.CommandOffset = 7 }, "command"},
		{"a command that is not in the log", func(e *pb.Envelope) { e.CommandOffset = 100 }, "command"},
		{"a command without identity", func(e *pb.Envelope) { e.CommandId = nil }, "command"},
		{"time that runs back", func(e *pb.Envelope) { e.Stamp.TimeUs = 1 }, "time"},
		{"time that runs back, in an expired command", func(e *pb.Envelope) {
			e.Stamp.TimeUs, e.Stamp.Failed, e.Events, e.Outcome = 1, "command_expired", nil, &pb.Outcome{Error: "command_expired"}
		}, ""},
		{"a control position that runs back", func(e *pb.Envelope) { e.Stamp.ControlSeq = 2 }, "control"},
		{"a control position that does not exist", func(e *pb.Envelope) { e.Stamp.ControlSeq = 4 }, "control"},
		{"a refusal with events", func(e *pb.Envelope) { e.Outcome.Error = "not_found" }, "outcome"},
		{"a repeat with events", func(e *pb.Envelope) { e.Outcome.Replayed = true }, "outcome"},
		{"a stamp that failed, carried out", func(e *pb.Envelope) { e.Stamp.Failed = "unavailable" }, "outcome"},
		{"an outcome about another link", func(e *pb.Envelope) { e.Outcome.Code = "other" }, "outcome"},
		{"an outcome of another version", func(e *pb.Envelope) { e.Outcome.Version = 3 }, "outcome"},
		{"success without events on a link that never was", func(e *pb.Envelope) { e.Events, e.Outcome.Code = nil, "never" }, "outcome"},
		{"no change, at a version that is over", func(e *pb.Envelope) { e.Events, e.Outcome.Version = nil, 2 }, "outcome"},
		{"a repeat of a version to come", func(e *pb.Envelope) { e.Events, e.Outcome.Version, e.Outcome.Replayed = nil, 9, true }, "outcome"},
		{"a version left out", func(e *pb.Envelope) { e.Events[0].GetLinkStatusChanged().Version, e.Outcome.Version = 5, 5 }, "version"},
		{"another link's id", func(e *pb.Envelope) {
			e.Events[0].GetLinkStatusChanged().Link.LinkId = 77
		}, "id"},
		{"a link of another bucket", func(e *pb.Envelope) {
			e.Events[0] = &pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: &pb.LinkRef{LinkId: 50, Namespace: "s.example", Code: codeIn(2, 0)}}}}
			e.Stamp.CandidateId, e.Outcome = 50, &pb.Outcome{Namespace: "s.example", Code: codeIn(2, 0), Version: 1}
		}, "event"},
		{"a link created twice", func(e *pb.Envelope) {
			e.Events[0] = &pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: e.Events[0].GetLinkStatusChanged().Link}}}
			e.Stamp.CandidateId, e.Outcome.Version = 1, 1
		}, "version"},
		{"an event of the control stream", func(e *pb.Envelope) {
			e.Events[0] = &pb.Event{Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{Domain: &pb.Domain{Namespace: "x.example"}}}}
			e.Outcome = &pb.Outcome{Namespace: "s.example", Code: codeIn(1, 0), Version: 3}
		}, "event"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := given(t)
			rewrite(t, h.entries, 9, c.when)
			v := verify(t, h.entries, 10, 9)
			if got := strings.Join(kinds(v), " "); got != c.then {
				t.Errorf("found %q, wanted %q: %+v", got, c.then, v.Problems)
			}
		})
	}
}

func TestVerifyFollowsALinkBeyondItsEnd(t *testing.T) {
	h := given(t)
	h.change(codeIn(1, 0), pb.StatusAction_ENABLE)
	if got := kinds(verify(t, h.entries, 11, 10)); !slices.Equal(got, []string{projections.ProblemVersion}) {
		t.Errorf("found %q", got)
	}
}

func TestVerifyCreatesWithTheStampedIdentity(t *testing.T) {
	h := given(t)
	h.create(codeIn(1, 5))
	rewrite(t, h.entries, 10, func(e *pb.Envelope) { e.Stamp.CandidateCode = "another" })
	if got := kinds(verify(t, h.entries, 11, 10)); !slices.Equal(got, []string{projections.ProblemOutcome}) {
		t.Errorf("found %q", got)
	}
}

func TestVerifyFindsOneIDOfTwoLinks(t *testing.T) {
	h := given(t)
	h.nextID = 2
	h.create(codeIn(1, 5))
	v := verify(t, h.entries, 11, 10)
	if got := kinds(v); !slices.Equal(got, []string{projections.ProblemID}) {
		t.Errorf("found %+v", v.Problems)
	}
}

func TestVerifyKnowsTheFullHistory(t *testing.T) {
	h := newHistory(t)
	code := codeIn(1, 0)
	h.create(code)
	for range 100 {
		h.change(code, pb.StatusAction_DISABLE)
	}
	late := h.entries[3] // a copy of what is long past: void
	late.offset = int64(len(h.entries))
	h.entries = append(h.entries, late, late)
	rewrite(t, h.entries, len(h.entries)-1, func(e *pb.Envelope) { e.PrevHash[3] ^= 1 }) // a reader would take this for void too
	h.entries[len(h.entries)-1].offset++
	v := verify(t, h.entries, int64(len(h.entries)), h.commands)
	if got := kinds(v); !slices.Equal(got, []string{projections.ProblemChain}) || v.Void != 1 {
		t.Errorf("%d void, %+v", v.Void, v.Problems)
	}
	if p := v.Problems[0]; p.Topic != "events" || p.Partition != 1 || p.Offset != 102 || p.Bucket == nil || *p.Bucket != events.BucketOf("s.example", code) || p.Seq != 4 {
		t.Errorf("the problem is at %+v", p)
	}
}

func TestVerifyTheControlLog(t *testing.T) {
	for _, c := range []struct {
		name string
		when func(e *pb.Envelope)
		then string
	}{
		{"as it is", func(*pb.Envelope) {}, ""},
		{"leases that overlap", func(e *pb.Envelope) {
			e.Events[0] = &pb.Event{Kind: &pb.Event_SegmentLeased{SegmentLeased: &pb.SegmentLeased{Segment: &pb.Segment{Space: 7, From: 99, To: 200}}}}
		}, "id"},
		{"a permutation key replaced", func(e *pb.Envelope) { e.Events[0].GetPermutationKeyAdded().Key.Version = 3 }, "id"},
		{"a bucket that the stream has not", func(e *pb.Envelope) { e.Bucket = 1 }, "misplaced"},
		{"a link's event", func(e *pb.Envelope) {
			e.Events[0] = &pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: &pb.LinkRef{}}}}
		}, "event"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := controlHistory(t)
			rewrite(t, h.entries, 2, c.when)
			v := projections.NewVerification()
			verifyControl(t, v, h.entries)
			if got := strings.Join(kinds(v), " "); got != c.then {
				t.Errorf("found %q, wanted %q: %+v", got, c.then, v.Problems)
			}
		})
	}
}

func TestVerifyListsABoundedNumberOfProblems(t *testing.T) {
	v := projections.NewVerification()
	p := v.Partition("events", 0, 1)
	for offset := range int64(2500) {
		p.Add(offset, nil, nil)
	}
	p.End(2500, 0)
	v.Finish()
	if n := len(v.Problems); n != 1001 || v.Problems[1000].Kind != projections.ProblemMore || !strings.HasPrefix(v.Problems[1000].Detail, "1500 more") {
		t.Errorf("%d problems, the last is %+v", n, v.Problems[n-1])
	}
}

// An envelope names the command that it answers by offset and id; a command topic that says something else has lost, repeated
// or moved commands.
func TestVerifyComparesCommands(t *testing.T) {
	h := given(t)
	command := func(offset int64) []byte {
		id := sha256.Sum256(fmt.Append(nil, offset))
		value, err := (&pb.LinkCommand{CommandId: id[:16]}).MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for _, c := range []struct {
		name   string
		from   int64
		change func(ids []int64) []int64
		wrong  []int64 // offsets
	}{
		{"as it was", 0, func(ids []int64) []int64 { return ids }, nil},
		{"trimmed", 4, func(ids []int64) []int64 { return ids[4:] }, nil},
		{"one dropped", 0, func(ids []int64) []int64 { return slices.Delete(ids, 6, 7) }, []int64{6, 7}},
		{"one repeated", 0, func(ids []int64) []int64 { return slices.Insert(ids, 7, ids[6]) }, []int64{7, 8}},
		{"two swapped", 0, func(ids []int64) []int64 { ids[2], ids[3] = ids[3], ids[2]; return ids }, []int64{2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := projections.NewVerification()
			verifyControl(t, v, controlHistory(t).entries)
			p := v.Partition("events", 1, verifyPartitions)
			p.Commands("commands", c.from, h.commands)
			for _, e := range h.entries {
				p.Add(e.offset, e.key, e.value)
			}
			var ids []int64
			for id := range h.commands {
				ids = append(ids, id)
			}
			for i, id := range c.change(ids) {
				p.Command(c.from+int64(i), command(id))
			}
			p.End(int64(len(h.entries)), h.commands)
			v.Finish()
			var wrong []int64
			for _, problem := range v.Problems {
				if problem.Kind != projections.ProblemCommand || problem.Topic != "commands" || problem.Partition != 1 {
					t.Errorf("%+v", problem)
				}
				wrong = append(wrong, problem.Offset)
			}
			if !slices.Equal(wrong, c.wrong) {
				t.Errorf("wrong at %v, want %v", wrong, c.wrong)
			}
		})
	}
}
