package bench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// chain is what fill wrote to one partition: valid chains of its buckets, nine creates and then an update of an earlier
// link, each envelope like a writer's after a create by HTTP.
type chain struct {
	partition int32
	links     []chainLink
	heads     map[uint32]chainHead
	random    *rand.Rand
	offset    int64
	number    uint64 // of the next code to try
	bytes     int64
}

type chainLink struct {
	number  uint64
	version uint64
}

type chainHead struct {
	seq  uint64
	hash events.Hash
}

const (
	chainNamespace = "s.example"
	chainOwner     = "default"
	chainActor     = "key:0f3a1b2c"
	chainBegan     = 1_700_000_000_000_000 // microseconds
	updateEvery    = 10
	fillBatch      = 250 // records, about a group commit under load
)

// fill writes so many envelopes to an empty topic.
func (b *broker) fill(ctx context.Context, count int, progress func(int64)) ([]*chain, error) {
	chains := make([]*chain, partitions)
	var mu sync.Mutex // guards filled
	var filled int64
	group, ctx := errgroup.WithContext(ctx)
	for p := range chains {
		c := &chain{partition: int32(p), heads: map[uint32]chainHead{}, random: rand.New(rand.NewPCG(1, uint64(p)))}
		chains[p] = c
		share := count / partitions
		if p < count%partitions {
			share++
		}
		group.Go(func() error {
			appender, err := b.log.NewAppender(eventlog.EventsLink)
			if err != nil {
				return err
			}
			defer appender.Close()
			for share > 0 {
				records := make([]eventlog.Record, 0, fillBatch)
				for range min(fillBatch, share) {
					records = append(records, c.next())
				}
				if err := appender.Append(ctx, c.partition, records, c.offset-int64(len(records))); err != nil {
					return fmt.Errorf("filling the log: %w", err)
				}
				share -= len(records)
				mu.Lock()
				filled += int64(len(records))
				progress(filled)
				mu.Unlock()
			}
			return nil
		})
	}
	return chains, group.Wait()
}

// next makes the record of the partition's next envelope.
func (c *chain) next() eventlog.Record {
	var event *pb.Event
	var request *pb.RequestRef
	var link *chainLink
	stamp := &pb.Stamp{TimeUs: chainBegan + c.offset, ControlSeq: 4, DomainKnown: true}
	if c.offset%updateEvery == updateEvery-1 {
		i := c.random.IntN(len(c.links))
		link = &c.links[i]
		link.version++
		event = &pb.Event{Kind: &pb.Event_LinkUpdated{LinkUpdated: &pb.LinkUpdated{Link: link.ref(), Version: link.version,
			Content: &pb.LinkContent{Target: c.target(i)}, Changed: []string{"target"}}}}
	} else {
		link = c.draw()
		event = &pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: link.ref(), Content: &pb.LinkContent{Target: c.target(len(c.links) - 1)}}}}
		stamp.CandidateId, stamp.CandidateCode = link.number, codeOf(link.number)
	}
	hash := sha256.Sum256(binary.BigEndian.AppendUint64(nil, c.random.Uint64()))
	request = &pb.RequestRef{Owner: chainOwner, Key: fmt.Sprintf("%x", hash[:18]), BodyHash: hash[:]}
	return c.seal(&pb.Envelope{CommandId: hash[16:], Stamp: stamp, Events: []*pb.Event{event}, Actor: chainActor, Request: request,
		Outcome: &pb.Outcome{Namespace: chainNamespace, Code: codeOf(link.number), Version: link.version}})
}

// draw makes a link whose code routes to the partition.
func (c *chain) draw() *chainLink {
	for {
		c.number++
		if events.PartitionOf(events.BucketOf(chainNamespace, codeOf(c.number)), partitions) == c.partition {
			c.links = append(c.links, chainLink{number: c.number, version: 1})
			return &c.links[len(c.links)-1]
		}
	}
}

// seal gives the envelope its place in its bucket's chain, as a writer does.
func (c *chain) seal(e *pb.Envelope) eventlog.Record {
	e.Bucket = events.BucketOf(chainNamespace, e.GetOutcome().GetCode())
	head := c.heads[e.GetBucket()]
	e.SchemaVersion, e.Seq, e.PrevHash, e.CommandOffset, e.LowWatermark = events.SchemaVersion, head.seq+1, head.hash[:], c.offset, max(0, c.offset-fillBatch)
	value, hash, err := events.EncodeEnvelope(e)
	if err != nil {
		panic(fmt.Sprintf("encoding an envelope of ours: %v", err))
	}
	c.heads[e.GetBucket()] = chainHead{e.GetSeq(), hash}
	c.offset++
	record := eventlog.Record{Key: events.BucketKey(e.GetBucket()), Value: value}
	c.bytes += int64(len(value))
	for _, a := range events.CloudEvent(events.StreamLink, &events.Envelope{Envelope: e, Hash: hash}) {
		record.Headers = append(record.Headers, a)
		c.bytes += int64(len(a.Key) + len(a.Value))
	}
	return record
}

func (l *chainLink) ref() *pb.LinkRef {
	return &pb.LinkRef{LinkId: l.number, Namespace: chainNamespace, Code: codeOf(l.number), Owner: chainOwner}
}

// target is where link i of the chain points to now.
func (c *chain) target(i int) string {
	l := c.links[i]
	return fmt.Sprintf("https://shop.example.com/products/%d?utm_source=mail&utm_campaign=spring&edition=%d", l.number, l.version)
}

const (
	base62     = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	codeLength = 7
	codeSpace  = 62 * 62 * 62 * 62 * 62 * 62 * 62
	// codeStep has no factor in common with codeSpace: codes of different numbers differ.
	codeStep = 2_654_435_761
)

// codeOf returns a code of seven characters, scattered as permuted codes are.
func codeOf(number uint64) string {
	n := number * codeStep % codeSpace
	var code [codeLength]byte
	for i := range code {
		code[i] = base62[n%uint64(len(base62))]
		n /= uint64(len(base62))
	}
	return string(code[:])
}
