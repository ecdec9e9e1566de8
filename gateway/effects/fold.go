package effects

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/projections/runner"
	"github.com/hoplog/hoplog/schemas/pb"
)

// First bytes of the fold's keys.
const (
	keyRecord = 'r' // bucket, route key → redirect record
	keyCached = 'c' // bucket, route key: the link has, or ever had, a cache_ttl
	keyVoid   = 'v' // partition, offset: the record there is void
)

// FoldConfig is what a Fold needs. Dir holds its store and nothing else.
type FoldConfig struct {
	Dir    string
	Source runner.Source
	Pebble runner.PebbleOptions
}

// Fold is what this process knows of the links: the record that visitors are served by, whether an answer may lie in others'
// caches, and which records of the log count for nothing. It is fed while Run runs.
type Fold struct {
	*runner.Runner
	store *runner.Pebble
}

// OpenFold opens the fold in a directory, or begins it.
func OpenFold(cfg FoldConfig) (*Fold, error) {
	store, err := runner.OpenPebble(cfg.Dir, cfg.Pebble)
	if err != nil {
		return nil, err
	}
	f := &Fold{store: store}
	f.Runner, err = runner.New(runner.Config{Topic: eventlog.EventsLink, Stream: events.StreamLink, Source: cfg.Source, Store: store,
		Projection: &foldProjection{}, Logger: cfg.Pebble.Logger})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return f, nil
}

// Close ends the tail and closes the store. Nobody may be asking, and no run be under way.
func (f *Fold) Close() error {
	f.Runner.Close()
	return f.store.Close()
}

// Link returns what visitors of a link are served by, as of the newest version that is folded; nil if there is no such link.
func (f *Fold) Link(namespace, code string) (*pb.Redirect, error) {
	value, found, err := f.store.Get(nil, linkKey(keyRecord, events.BucketOf(namespace, code), namespace, code))
	if err != nil || !found {
		return nil, err
	}
	link := &pb.Redirect{}
	if err := link.UnmarshalVT(value); err != nil {
		return nil, fmt.Errorf("decoding the stored record: %w", err)
	}
	return link, nil
}

// cached reports whether an answer of a link may lie in a cache, now or since an earlier version.
func (f *Fold) cached(c *Change) (bool, error) {
	_, found, err := f.store.Get(nil, linkKey(keyCached, events.BucketOf(c.Namespace, c.Code), c.Namespace, c.Code))
	return found, err
}

func (f *Fold) void(partition int32, offset int64) (bool, error) {
	_, found, err := f.store.Get(nil, voidKey(partition, offset))
	return found, err
}

// foldPoll is how often a reader that is ahead of the fold looks again.
const foldPoll = 2 * time.Millisecond

// errLost: both keys of a link are written by one commit.
var errLost = errors.New("the record of a link is lost from the store of effects")

// follower is a fold that follows a topic.
type follower interface {
	Positions() []int64 // the offset after the last that is folded, by partition
	Err() error         // why it stopped
}

// passed waits until a fold is past an offset.
func passed(ctx context.Context, f follower, partition int32, offset int64) error {
	for {
		if p := f.Positions(); int(partition) < len(p) && p[partition] > offset {
			return nil
		}
		if err := f.Err(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(foldPoll):
		}
	}
}

// linkKey begins with the bucket, so that a key belongs to one partition.
func linkKey(kind byte, bucket uint32, namespace, code string) []byte {
	key := make([]byte, 0, 4+len(namespace)+len(code))
	key = binary.BigEndian.AppendUint16(append(key, kind), uint16(bucket))
	return append(append(append(key, namespace...), 0), code...)
}

// eachCached calls f for links whose answers may lie in caches, in the order of their keys, from a key of theirs on: for so many
// at most. Key and link are lent for the call. It returns the key at which to go on, nil when there are no more.
func (f *Fold) eachCached(from []byte, most int, each func(routeKey []byte, link *pb.Redirect)) (next []byte, err error) {
	cached, err := f.store.DB().NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{keyCached + 1}})
	if err != nil {
		return nil, fmt.Errorf("reading the links: %w", err)
	}
	defer func() { err = errors.Join(err, cached.Close()) }()
	records, err := f.store.DB().NewIter(&pebble.IterOptions{LowerBound: []byte{keyRecord}, UpperBound: []byte{keyRecord + 1}})
	if err != nil {
		return nil, fmt.Errorf("reading the links: %w", err)
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	link, key := &pb.Redirect{}, []byte{keyRecord}
	for ok := cached.First(); ok; ok = cached.Next() {
		if most--; most < 0 {
			return slices.Clone(cached.Key()), nil
		}
		key = append(key[:1], cached.Key()[1:]...)
		if !records.SeekGE(key) || !bytes.Equal(records.Key(), key) {
			return nil, errors.Join(errLost, records.Error())
		}
		value, err := records.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("reading the links: %w", err)
		}
		link.Reset()
		if err := link.UnmarshalVT(value); err != nil {
			return nil, fmt.Errorf("decoding the stored record: %w", err)
		}
		each(key[3:], link)
	}
	return nil, errors.Join(cached.Error(), records.Error())
}

func voidKey(partition int32, offset int64) []byte {
	key := binary.BigEndian.AppendUint32([]byte{keyVoid}, uint32(partition))
	return binary.BigEndian.AppendUint64(key, uint64(offset))
}

// foldProjection is the fold. It implements runner.VoidFolder.
type foldProjection struct {
	record pb.Redirect // reused by Apply
}

// Name implements runner.Projection.
func (*foldProjection) Name() string { return "effects/1" }

// Apply implements runner.Projection.
func (p *foldProjection) Apply(w *runner.Write, a runner.Accepted) error {
	for _, event := range a.GetEvents() {
		ref := events.LinkOf(event)
		if ref == nil {
			continue
		}
		key := linkKey(keyRecord, a.GetBucket(), ref.GetNamespace(), ref.GetCode())
		if err := projections.NextRedirect(&p.record, w, key, event); err != nil {
			return err
		}
		if err := w.SetMessage(key, &p.record); err != nil {
			return err
		}
		if p.record.GetCacheTtl() > 0 {
			w.Set(linkKey(keyCached, a.GetBucket(), ref.GetNamespace(), ref.GetCode()), nil)
		}
	}
	return nil
}

// ApplyVoid implements runner.VoidFolder.
func (*foldProjection) ApplyVoid(w *runner.Write, partition int32, offset int64) {
	w.Set(voidKey(partition, offset), nil)
}

// Committed implements runner.Projection; of a Lender it is not called.
func (*foldProjection) Committed([]runner.Accepted) {}

// Fork implements runner.Lender.
func (*foldProjection) Fork() runner.Projection { return &foldProjection{} }

// Written implements runner.Lender.
func (*foldProjection) Written(*runner.Write) {}
