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

// chain is what fillTopic wrote to one partition: valid chains of its buckets, nine creates and then an update of an earlier
// link, each envelope like a writer's after a create by HTTP. The commands that they answer are in no log, so no writer may run
// on it: it would take them for lost.
type chain struct {
	partition int32
	count     int // partitions of the topic
	batch     int // records of an append
	links     []chainLink
	heads     map[uint32]chainHead
	random    *rand.Rand
	offset    int64
	number    uint32 // of the next code to try
	bytes     int64
}

// chainLink is small: there may be many millions.
type chainLink struct {
	number  uint32
	version uint32
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
	fillBatch      = 250  // records, about a group commit under load
	largeBatch     = 4000 // where the links count, not how they came into the log
)

// fill writes so many envelopes to an empty topic.
func (b *broker) fill(ctx context.Context, count int, progress func(int64)) ([]*chain, error) {
	shares := make([]int, partitions)
	for p := range shares {
		shares[p] = shareOf(count, partitions, p)
	}
	return fillTopic(ctx, b.log, shares, fillBatch, progress)
}

// shareOf is partition p's part of a count.
func shareOf(count, partitions, p int) int { return (count + partitions - 1 - p) / partitions }

// fillTopic writes so many envelopes to each partition of an empty topic, so many in an append. Progress hears the sum, from one
// goroutine at a time.
func fillTopic(ctx context.Context, log *eventlog.Log, shares []int, batch int, progress func(int64)) ([]*chain, error) {
	chains := make([]*chain, len(shares))
	var mu sync.Mutex // guards filled
	var filled int64
	group, ctx := errgroup.WithContext(ctx)
	for p, share := range shares {
		c := &chain{partition: int32(p), count: len(shares), batch: batch, links: make([]chainLink, 0, share), heads: map[uint32]chainHead{},
			random: rand.New(rand.NewPCG(1, uint64(p)))}
		chains[p] = c
		group.Go(func() error {
			return c.write(ctx, log, share, func(more int) {
				mu.Lock()
				defer mu.Unlock()
				filled += int64(more)
				progress(filled)
			})
		})
	}
	return chains, group.Wait()
}

// write appends so many envelopes. The next are made while those before them are on their way.
func (c *chain) write(ctx context.Context, log *eventlog.Log, count int, wrote func(int)) error {
	appender, err := log.NewAppender(eventlog.EventsLink)
	if err != nil {
		return err
	}
	defer appender.Close()
	var under errgroup.Group
	for count > 0 {
		records := make([]eventlog.Record, 0, c.batch)
		from := c.offset
		for range min(c.batch, count) {
			records = append(records, c.next())
		}
		count -= len(records)
		if err := under.Wait(); err != nil {
			return err
		}
		under.Go(func() error {
			if err := appender.Append(ctx, c.partition, records, from); err != nil {
				return fmt.Errorf("filling the log: %w", err)
			}
			wrote(len(records))
			return nil
		})
	}
	return under.Wait()
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
		event = &pb.Event{Kind: &pb.Event_LinkUpdated{LinkUpdated: &pb.LinkUpdated{Link: link.ref(), Version: uint64(link.version),
			Content: &pb.LinkContent{Target: c.target(i)}, Changed: []string{"target"}}}}
	} else {
		link = c.draw()
		event = &pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: link.ref(), Content: &pb.LinkContent{Target: c.target(len(c.links) - 1)}}}}
		stamp.CandidateId, stamp.CandidateCode = uint64(link.number), codeOf(link.number)
	}
	hash := sha256.Sum256(binary.BigEndian.AppendUint64(nil, c.random.Uint64()))
	request = &pb.RequestRef{Owner: chainOwner, Key: fmt.Sprintf("%x", hash[:18]), BodyHash: hash[:]}
	return c.seal(&pb.Envelope{CommandId: hash[16:], Stamp: stamp, Events: []*pb.Event{event}, Actor: chainActor, Request: request,
		Outcome: &pb.Outcome{Namespace: chainNamespace, Code: codeOf(link.number), Version: uint64(link.version)}})
}

// draw makes a link whose code routes to the partition.
func (c *chain) draw() *chainLink {
	for {
		c.number++
		if events.PartitionOf(events.BucketOf(chainNamespace, codeOf(c.number)), c.count) == c.partition {
			c.links = append(c.links, chainLink{number: c.number, version: 1})
			return &c.links[len(c.links)-1]
		}
	}
}

// seal gives the envelope its place in its bucket's chain, as a writer does.
func (c *chain) seal(e *pb.Envelope) eventlog.Record {
	e.Bucket = events.BucketOf(chainNamespace, e.GetOutcome().GetCode())
	head := c.heads[e.GetBucket()]
	e.SchemaVersion, e.Seq, e.PrevHash, e.CommandOffset, e.LowWatermark = events.SchemaVersion, head.seq+1, head.hash[:], c.offset, max(0, c.offset-int64(c.batch))
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
	return &pb.LinkRef{LinkId: uint64(l.number), Namespace: chainNamespace, Code: codeOf(l.number), Owner: chainOwner}
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
func codeOf(number uint32) string { return string(appendCode(nil, number)) }

func appendCode(dst []byte, number uint32) []byte {
	n := uint64(number) * codeStep % codeSpace
	for range codeLength {
		dst = append(dst, base62[n%uint64(len(base62))])
		n /= uint64(len(base62))
	}
	return dst
}
