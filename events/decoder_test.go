package events_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// full is an envelope with everything in it that a field can be given.
func full() *pb.Envelope {
	link := &pb.LinkRef{LinkId: 1 << 60, Namespace: "s.example", Code: "abc", Owner: "acme"}
	content := &pb.LinkContent{Target: "https://a.example/", Title: "A", Tags: []string{"x", "y"}, RedirectStatus: 307, Query: pb.QueryPolicy_QUERY_DROP,
		CacheTtl: 60, NotBeforeUs: 1, ExpiresUs: 2}
	return &pb.Envelope{SchemaVersion: 1, Bucket: 1024, Seq: 1, PrevHash: make([]byte, 32), CommandOffset: 300, CommandId: []byte("id"), LowWatermark: 299,
		Stamp:   &pb.Stamp{TimeUs: 5, ControlSeq: 4, DomainKnown: true, DomainOwner: "o", ReservedCode: true, TargetIsOwn: true, CandidateId: 9, CandidateCode: "c", Failed: "f"},
		Events:  []*pb.Event{{Kind: &pb.Event_LinkUpdated{LinkUpdated: &pb.LinkUpdated{Link: link, Version: 2, Content: content, Changed: []string{"title"}, Reason: "r"}}}},
		Outcome: &pb.Outcome{Error: "e", Detail: "d", Field: "f", Namespace: "s.example", Code: "abc", Version: 2, Replayed: true, Existing: true},
		Actor:   "key:1", Request: &pb.RequestRef{Owner: "acme", Key: "k", BodyHash: []byte("h")}}
}

func encoded(tb testing.TB, change func(*pb.Envelope)) []byte {
	tb.Helper()
	e := full()
	change(e)
	value, err := e.MarshalVT()
	if err != nil {
		tb.Fatal(err)
	}
	return value
}

// decoderSeeds are values of the common form, and those that nearly are.
func decoderSeeds(tb testing.TB) [][]byte {
	tb.Helper()
	plain := encoded(tb, func(*pb.Envelope) {})
	event := func(kind *pb.Event) []byte {
		return encoded(tb, func(e *pb.Envelope) { e.Events = []*pb.Event{kind} })
	}
	seeds := [][]byte{plain, {}, plain[:len(plain)-1],
		event(&pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: &pb.LinkRef{Code: "a"}, Content: &pb.LinkContent{}, Fingerprint: []byte{1}}}}),
		event(&pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: &pb.LinkRef{Code: "a"}}}}),
		event(&pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{}}}),
		event(&pb.Event{Kind: &pb.Event_LinkUpdated{LinkUpdated: &pb.LinkUpdated{Content: &pb.LinkContent{Target: "t"}}}}),
		event(&pb.Event{Kind: &pb.Event_LinkStatusChanged{LinkStatusChanged: &pb.LinkStatusChanged{Link: &pb.LinkRef{}, Action: pb.StatusAction_BAN, Legal: true}}}),
		event(&pb.Event{Kind: &pb.Event_LinkStatusChanged{LinkStatusChanged: &pb.LinkStatusChanged{Action: pb.StatusAction_DELETE, Reason: "r"}}}),
		event(&pb.Event{Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{}}}),
		event(&pb.Event{}),
		encoded(tb, func(e *pb.Envelope) { e.Events = nil }),
		encoded(tb, func(e *pb.Envelope) { e.Events = append(e.Events, e.Events[0]) }),
		encoded(tb, func(e *pb.Envelope) { e.Stamp = nil }),
		encoded(tb, func(e *pb.Envelope) { e.Outcome = nil }),
		encoded(tb, func(e *pb.Envelope) { e.Stamp, e.Outcome, e.Request = &pb.Stamp{}, &pb.Outcome{}, nil }),
		encoded(tb, func(e *pb.Envelope) { e.SchemaVersion = 2 }),
		encoded(tb, func(e *pb.Envelope) { e.Seq = 0 }),
		encoded(tb, func(e *pb.Envelope) { e.CommandOffset = -1 }),
		append(bytes.Clone(plain), 3<<3, 7),                 // seq once more
		append(bytes.Clone(plain), 7<<3|2, 2, 1<<3, 9),      // stamp once more: the two are merged
		append(bytes.Clone(plain), 13<<3|2, 1, 'x'),         // a field that nobody knows
		append(bytes.Clone(plain), 0x82, 0x01, 0),           // a field 16
		append(bytes.Clone(plain), 2<<3|2, 1, 7),            // the bucket as bytes
		append([]byte{2 << 3, 0x80, 0x00}, plain[5:]...),    // a number written longer than it need be
		append([]byte{2<<3 | 1}, plain[5:]...),              // fixed64
		append(bytes.Clone(plain), 8<<3|2, 3, 1<<3|2, 1, 9), // an event of nonsense
	}
	samples, err := filepath.Glob("../schemas/samples/*.bin")
	if err != nil || len(samples) == 0 {
		tb.Fatal("no samples", err)
	}
	for _, name := range samples {
		value, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		seeds = append(seeds, value)
	}
	return seeds
}

// agrees decodes a value as Decoder and as DecodeEnvelope do, after an envelope of which nothing may be left over.
func agrees(t *testing.T, d *events.Decoder, before, value []byte) {
	t.Helper()
	if _, err := d.Decode(before); err != nil {
		t.Fatal(err)
	}
	want, wantErr := events.DecodeEnvelope(value)
	got, err := d.Decode(value)
	for _, known := range []error{events.ErrMalformed, events.ErrNewer} {
		if errors.Is(err, known) != errors.Is(wantErr, known) {
			t.Fatalf("%x: %v, but DecodeEnvelope says %v", value, err, wantErr)
		}
	}
	if wantErr != nil {
		return
	}
	if got.Hash != want.Hash || !proto.Equal(got.Envelope, want.Envelope) {
		t.Fatalf("got  %v\nwant %v", got.Envelope, want.Envelope)
	}
}

func TestDecoderAgreesWithDecodeEnvelope(t *testing.T) {
	var d events.Decoder
	seeds := decoderSeeds(t)
	for i, before := range seeds {
		if _, err := events.DecodeEnvelope(before); err != nil {
			continue
		}
		for _, value := range seeds[i:] {
			agrees(t, &d, before, value)
		}
	}
}

func TestDecoderDoesNotAllocate(t *testing.T) {
	var d events.Decoder
	value := encoded(t, func(e *pb.Envelope) {
		e.Events = []*pb.Event{{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: &pb.LinkRef{Code: "a"}, Content: &pb.LinkContent{Target: "t"}}}}}
	})
	if n := testing.AllocsPerRun(100, func() { _, _ = d.Decode(value) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecoder(f *testing.F) {
	for _, seed := range decoderSeeds(f) {
		f.Add(seed)
	}
	before := encoded(f, func(*pb.Envelope) {})
	f.Fuzz(func(t *testing.T, value []byte) {
		var d events.Decoder
		agrees(t, &d, before, value)
	})
}

func BenchmarkDecode(b *testing.B) {
	value := encoded(b, func(e *pb.Envelope) {
		e.Events = []*pb.Event{{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: e.Events[0].GetLinkUpdated().GetLink(),
			Content: &pb.LinkContent{Target: "https://shop.example.com/products/1?utm_source=mail&utm_campaign=spring"}}}}}
	})
	run := func(decode func([]byte) (*events.Envelope, error)) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				if _, err := decode(value); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	var d events.Decoder
	b.Run("anew", run(events.DecodeEnvelope))
	b.Run("lent", run(d.Decode))
}
