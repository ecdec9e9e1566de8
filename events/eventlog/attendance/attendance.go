package attendance

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	poll = 500 * time.Millisecond
	// grace is how much later than its session's end a member is made to leave: the broker is to be first.
	grace = time.Second
	// joinGrace is how much longer than the rebalance timeout a client may wait for the answer to a join: ours 2 s, Java's 5 s.
	joinGrace = 6 * time.Second
	// leaveTimeout bounds one request to leave; the next poll tries again.
	leaveTimeout = 5 * time.Second
	stable       = "Stable"
)

// Roll hears which members of which groups give a sign of life.
type Roll struct {
	cluster *kfake.Cluster
	logger  *slog.Logger
	client  []kgo.Opt
	stop    context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex // guards what follows; never held while the broker is asked
	groups map[string]*group
}

type group struct {
	members map[string]member
	epoch   int32
	since   time.Time // since when it was seen stable in this epoch; zero: it is not
}

type member struct {
	session, rebalance time.Duration
	heard              time.Time
}

// Keep starts to call the roll of a broker, until Close. client says how the broker is reached.
func Keep(cluster *kfake.Cluster, logger *slog.Logger, client ...kgo.Opt) *Roll {
	r := &Roll{cluster: cluster, logger: logger, client: client, done: make(chan struct{}), groups: map[string]*group{}}
	for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat} {
		cluster.ControlKey(int16(key), r.hear)
	}
	var life context.Context
	life, r.stop = context.WithCancel(context.Background())
	go r.run(life)
	return r
}

// Close ends the roll. It must be called before the broker is closed.
func (r *Roll) Close() {
	r.stop()
	<-r.done
}

// hear notes a sign of life and leaves the request to the broker.
func (r *Roll) hear(request kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // the broker's signature
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch q := request.(type) {
	case *kmsg.JoinGroupRequest:
		if q.MemberID != "" { // who has no id yet asks for one and joins with it
			r.group(q.Group).members[q.MemberID] = member{session: milliseconds(q.SessionTimeoutMillis),
				rebalance: milliseconds(q.RebalanceTimeoutMillis), heard: now}
		}
	case *kmsg.SyncGroupRequest:
		r.group(q.Group).heard(q.MemberID, now)
	case *kmsg.HeartbeatRequest:
		r.group(q.Group).heard(q.MemberID, now)
	}
	return nil, nil, false
}

func milliseconds(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

// group returns a group's page; r.mu is held.
func (r *Roll) group(name string) *group {
	if r.groups[name] == nil {
		r.groups[name] = &group{members: map[string]member{}}
	}
	return r.groups[name]
}

func (g *group) heard(id string, now time.Time) {
	if m, known := g.members[id]; known {
		m.heard = now
		g.members[id] = m
	}
}

func (r *Roll) run(life context.Context) {
	defer close(r.done)
	for {
		select {
		case <-life.Done():
			return
		case <-time.After(poll):
			for _, name := range r.names() {
				r.call(life, name)
			}
		}
	}
}

func (r *Roll) names() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.groups {
		names = append(names, name)
	}
	return names
}

// call makes the members of a group leave who are silent for too long.
func (r *Roll) call(life context.Context, name string) {
	info := r.cluster.GroupInfo(name)
	if info == nil {
		info = &kfake.GroupInfo{Group: name}
	}
	for _, id := range r.silent(info, time.Now()) {
		if err := r.leave(life, name, id); err != nil {
			if life.Err() == nil {
				r.logger.Warn("removing a dead group member failed", "group", name, "member", id, "error", err)
			}
			continue
		}
		r.logger.Warn("group member removed that died while it joined", "group", name, "member", id)
	}
}

// silent returns who should leave, and forgets who has left.
func (r *Roll) silent(info *kfake.GroupInfo, now time.Time) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[info.Group]
	g.look(info, now)
	present := map[string]bool{}
	for _, in := range info.Members {
		present[in.MemberID] = true
		if m, known := g.members[in.MemberID]; known && g.dead(m, now) {
			ids = append(ids, in.MemberID)
		}
	}
	for id, m := range g.members {
		if !present[id] && now.Sub(m.heard) > m.session+m.rebalance {
			delete(g.members, id)
		}
	}
	if len(g.members) == 0 {
		delete(r.groups, info.Group)
	}
	return ids
}

func (g *group) look(info *kfake.GroupInfo, now time.Time) {
	if info.State != stable {
		g.since = time.Time{}
	} else if g.since.IsZero() || info.Epoch != g.epoch {
		g.since, g.epoch = now, info.Epoch
	}
}

// dead reports whether a member is silent for too long. In a stable group everybody speaks several times in a session. In one that
// waits for its members, who has joined waits, and joins again after the rebalance timeout and a few seconds.
func (g *group) dead(m member, now time.Time) bool {
	silent := now.Sub(m.heard)
	if g.since.IsZero() {
		return silent > m.session+m.rebalance+joinGrace
	}
	return silent > m.session+grace && now.Sub(g.since) > m.session+grace
}

// leave says on a member's behalf that it leaves.
func (r *Roll) leave(life context.Context, name, id string) error {
	ctx, cancel := context.WithTimeout(life, leaveTimeout)
	defer cancel()
	client, err := kgo.NewClient(r.client...)
	if err != nil {
		return fmt.Errorf("making kafka client: %w", err)
	}
	defer client.Close()
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group, request.MemberID = name, id
	who := kmsg.NewLeaveGroupRequestMember()
	who.MemberID = id
	request.Members = append(request.Members, who)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("leaving group: %w", err)
	}
	codes := []int16{response.ErrorCode}
	for _, m := range response.Members {
		codes = append(codes, m.ErrorCode)
	}
	for _, code := range codes {
		if err := kerr.ErrorForCode(code); err != nil {
			return fmt.Errorf("leaving group: %w", err)
		}
	}
	return nil
}
