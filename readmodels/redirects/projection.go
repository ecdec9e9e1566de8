package redirects

import (
	"encoding/binary"
	"fmt"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// prefix is the first byte of every key; bucket and route key follow.
const prefix = 'r'

// keyHead is how many bytes precede the route key.
const keyHead = 3

// appendKey begins a key; the route key follows.
func appendKey(dst []byte, bucket uint32) []byte {
	return binary.BigEndian.AppendUint16(append(dst, prefix), uint16(bucket))
}

// bucketOf reads the bucket of a stored pair; one that is not ours counts as of no bucket.
func bucketOf(key, _ []byte) uint32 {
	if len(key) < keyHead || key[0] != prefix {
		return ^uint32(0)
	}
	return uint32(binary.BigEndian.Uint16(key[1:]))
}

// projection writes records into the store and keeps what is in memory from being old. A rebuild's has no memory.
type projection struct {
	memory *memory
	key    []byte      // reused by Apply
	record pb.Redirect // reused by Apply
}

// Name implements runner.Projection.
func (*projection) Name() string { return "redirects/1" }

// Apply implements runner.Projection.
func (p *projection) Apply(w *runner.Write, a runner.Accepted) error {
	for _, event := range a.GetEvents() {
		ref := events.LinkOf(event)
		if ref == nil {
			continue
		}
		p.key = appendRoute(appendKey(p.key[:0], a.GetBucket()), ref)
		if bucket := events.BucketOfKey(p.key[keyHead:]); bucket != a.GetBucket() {
			return fmt.Errorf("a link of bucket %d", bucket)
		}
		if err := projections.NextRedirect(&p.record, w, p.key, event); err != nil {
			return err
		}
		if err := w.SetMessage(p.key, &p.record); err != nil {
			return err
		}
	}
	return nil
}

// Committed implements runner.Projection; of a Lender it is not called.
func (*projection) Committed([]runner.Accepted) {}

// Fork implements runner.Lender: a key begins with its bucket, so it belongs to one partition.
func (*projection) Fork() runner.Projection { return &projection{} }

// Written implements runner.Lender: what changed is no longer served from memory as it was.
func (p *projection) Written(w *runner.Write) {
	if w.Len() > clearAbove {
		p.memory.forget()
		return
	}
	for key, value := range w.All() {
		if len(key) > keyHead && key[0] == prefix {
			p.memory.changed(key[keyHead:], value)
		}
	}
}

// clearAbove is how many changes at once empty all memory: it is filled again within seconds, looking for each takes longer.
const clearAbove = 100_000

func appendRoute(dst []byte, ref *pb.LinkRef) []byte {
	dst = append(dst, ref.GetNamespace()...)
	dst = append(dst, 0)
	return append(dst, ref.GetCode()...)
}
