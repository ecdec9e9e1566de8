package events_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Who takes what it has just encoded through the rule ends where every reader does, record by record.
func TestSentence7EncodedRecordsMeetTheSameRule(t *testing.T) {
	for name, change := range map[string]func(r [][2][]byte) [][2][]byte{
		"all is well":         func(r [][2][]byte) [][2][]byte { return r },
		"a second copy":       func(r [][2][]byte) [][2][]byte { return append(r, r[1]) },
		"key of another":      func(r [][2][]byte) [][2][]byte { r[1][0] = events.BucketKey(1025); return r },
		"no key":              func(r [][2][]byte) [][2][]byte { r[1][0] = nil; return r },
		"predecessor unknown": func(r [][2][]byte) [][2][]byte { return append(r[:1:1], r[2:]...) },
		"newer than we are":   func(r [][2][]byte) [][2][]byte { return rewrite(t, r, func(e *pb.Envelope) { e.SchemaVersion = 99 }) },
		"foreign partition":   func(r [][2][]byte) [][2][]byte { return rewrite(t, r, func(e *pb.Envelope) { e.Bucket = 5 }) },
		"no stamp":            func(r [][2][]byte) [][2][]byte { return rewrite(t, r, func(e *pb.Envelope) { e.Stamp = nil }) },
		"short hash": func(r [][2][]byte) [][2][]byte {
			return rewrite(t, r, func(e *pb.Envelope) { e.PrevHash = []byte("x") })
		},
		"other bytes": func(r [][2][]byte) [][2][]byte { return rewrite(t, r, func(e *pb.Envelope) { e.Actor = "another" }) },
		"an unknown event": func(r [][2][]byte) [][2][]byte {
			return rewrite(t, r, func(e *pb.Envelope) { e.Events = []*pb.Event{{}} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &build{t: t}
			h := b.add(1024, 1, events.Hash{}, func(e *pb.Envelope) { e.LowWatermark, e.Stamp.TimeUs = 3, 7 })
			h = b.add(1024, 2, h, func(e *pb.Envelope) { e.Outcome.Error, e.Stamp.TimeUs = events.ErrorCommandExpired, 1<<60 })
			b.add(1024, 3, h, func(e *pb.Envelope) { e.CommandOffset, e.Stamp.ControlSeq = 9, 4 })
			reader, writer := events.NewChecker("events", 1, 4), events.NewChecker("events", 1, 4)
			for _, r := range change(b.records) {
				e := &events.Envelope{Envelope: &pb.Envelope{}, Hash: sha256.Sum256(r[1])}
				if err := e.UnmarshalVT(r[1]); err != nil {
					t.Fatal(err)
				}
				_, want, wantErr := reader.Check(reader.Next(), r[0], r[1])
				got, err := writer.CheckEncoded(writer.Next(), r[0], e)
				if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("%v, %v; a reader: %v, %v", got, err, want, wantErr)
				}
				if writer.Place() != reader.Place() || writer.Voids() != reader.Voids() || writer.Head(1024) != reader.Head(1024) {
					t.Fatalf("at %+v, %+v; a reader at %+v, %+v", writer.Place(), writer.Head(1024), reader.Place(), reader.Head(1024))
				}
			}
			e, err := events.DecodeEnvelope(b.records[2][1])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := writer.CheckEncoded(99, b.records[2][0], e); err == nil {
				t.Error("a gap in offsets is read over")
			}
		})
	}
}
