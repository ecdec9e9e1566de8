//go:build synctests

package simulation

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/schemas/pb"
)

// settle writes what an installation begins with to the control log, and waits until the APIs know it.
func (w *world) settle() bool {
	list := []*pb.ControlCommand{
		{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: sharedDomain, IsDefault: true}}},
		{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: aliceDomain, Owner: alice}}},
		{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: bobDomain, Owner: bob}}},
		{Kind: &pb.ControlCommand_AddPermutationKey{AddPermutationKey: &pb.PermutationKey{Version: 1, Key: make([]byte, 16)}}},
	}
	for _, owner := range []string{alice, bob} {
		hash := sha256.Sum256([]byte(secretOf(owner)))
		list = append(list, &pb.ControlCommand{Kind: &pb.ControlCommand_AddKey{AddKey: &pb.ApiKey{Id: owner, Hash: hash[:], Owner: owner}}})
	}
	for i, c := range list {
		w.must(w.propose(w.ctx, c, uint64(i)))
	}
	return w.eventually("the APIs are ready", time.Minute, func() error {
		for _, p := range w.apis {
			a := p.send(w.ctx, &request{method: http.MethodPost, path: "/v1/links", owner: bob, key: "ready-" + p.name,
				body: encode(map[string]any{"target": "https://example.com/ready"})})
			if a.status != http.StatusCreated && a.status != http.StatusOK {
				return errors.New(a.String())
			}
		}
		return nil
	})
}

// propose appends a control command. Its id follows from its number.
func (w *world) propose(ctx context.Context, c *pb.ControlCommand, number uint64) error {
	c.SchemaVersion, c.Actor, c.TimeUs = events.SchemaVersion, "operator", w.now().UnixMicro()
	c.CommandId = binary.BigEndian.AppendUint64(make([]byte, 8, 16), number)
	value, err := c.MarshalVT()
	if err != nil {
		return err
	}
	session, err := w.truth.log.NewAppender(eventlog.CommandsControl)
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Append(ctx, 0, []eventlog.Record{{Key: events.BucketKey(events.ControlBucket), Value: value}}, eventlog.AnyOffset)
}

// operate changes the control log now and then: domains and reserved words.
func (w *world) operate(rng *rand.Rand, until time.Time) {
	for w.ctx.Err() == nil && time.Now().Before(until) {
		time.Sleep(time.Duration(300+rng.IntN(2000)) * time.Millisecond)
		number := rng.Uint64()
		c := &pb.ControlCommand{Kind: &pb.ControlCommand_AddDomain{AddDomain: &pb.Domain{Namespace: fmt.Sprintf("d%d.example", number%1_000_000)}}}
		if rng.IntN(2) == 0 {
			words := &pb.ReservedWords{}
			for range rng.IntN(3) {
				words.Words = append(words.Words, "word"+strconv.Itoa(rng.IntN(12)))
			}
			c = &pb.ControlCommand{Kind: &pb.ControlCommand_SetReservedWords{SetReservedWords: words}}
		}
		if err := w.propose(w.ctx, c, number); err != nil {
			w.trace.note("operator: %v", err)
			continue
		}
		w.trace.note("operator: %v", c)
	}
}

// newestDomain returns the last domain that was added while the simulation went on, "" before there is one.
func (w *world) newestDomain() string {
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	list := w.truth.control
	for i := len(list) - 1; i > 0; i-- {
		now, before := list[i].Domains(), list[i-1].Domains()
		if len(now) == len(before) {
			continue
		}
		for name := range now {
			if before[name] == nil && name != sharedDomain && name != aliceDomain && name != bobDomain {
				return name
			}
		}
	}
	return ""
}
