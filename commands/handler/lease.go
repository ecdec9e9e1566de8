package handler

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/commands/mint"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Sizes of leases, in ids. A link takes about as many as there are partitions; half of the least lease outlasts the trip of
// the next one through a busy control partition, and seven characters have 3.5e12 to burn.
const (
	leastLease = 1 << 18
	mostLease  = 1 << 22
)

// live begins or ends a writer's life on the ledger: ids belong to one life and die with it.
func (l *linkLedger) live(begins bool, logger *slog.Logger) {
	if l.mint != nil {
		l.mint.Close()
		l.mint = nil
	}
	if begins {
		m, err := mint.New(mint.Config{Partition: l.partition, Partitions: l.count, Leaser: newLeaser(l.control), FirstWait: l.firstWait, Key: newestKey(l.control.State()), Logger: logger,
			LeastLease: leastLease, MostLease: mostLease})
		if err != nil {
			logger.Error("creating links is not possible", "partition", l.partition, "error", err)
			return
		}
		m.Warm()
		l.mint = m
	}
	l.mints.Store(l.mint)
}

// newestKey returns the permutation key that codes are drawn with; the zero key before there is one.
func newestKey(c *commands.Control) mint.Key {
	keys := c.PermutationKeys()
	if len(keys) == 0 {
		return mint.Key{}
	}
	newest := keys[len(keys)-1]
	return mint.Key{Version: newest.GetVersion(), Secret: [16]byte(newest.GetKey())}
}

// leaser leases segments for one life by control commands.
type leaser struct {
	control *Control
	holder  string
}

func newLeaser(c *Control) *leaser {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &leaser{c, hex.EncodeToString(id[:])}
}

// Lease implements mint.Leaser.
func (l *leaser) Lease(ctx context.Context, space uint32, size uint64) (mint.Segment, error) {
	e, err := l.control.Propose(ctx, &pb.ControlCommand{Actor: "writer:" + l.holder,
		Kind: &pb.ControlCommand_LeaseSegment{LeaseSegment: &pb.LeaseSegment{Space: space, Size: size, Holder: l.holder}}})
	if err != nil {
		return mint.Segment{}, err
	}
	if len(e.GetEvents()) != 1 || e.GetEvents()[0].GetSegmentLeased() == nil {
		return mint.Segment{}, fmt.Errorf("lease refused: %s: %s", e.GetOutcome().GetError(), e.GetOutcome().GetDetail())
	}
	s := e.GetEvents()[0].GetSegmentLeased().GetSegment()
	return mint.Segment{Space: s.GetSpace(), From: s.GetFrom(), To: s.GetTo()}, nil
}
