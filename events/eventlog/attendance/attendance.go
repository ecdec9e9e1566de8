package attendance

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// poll is how often who waits is vouched for: several times in any session that is in use.
	poll = 500 * time.Millisecond
	// joinGrace is how much longer than the rebalance timeout a client may wait for the answer to a join: ours 2 s, Java's 5 s.
	joinGrace = 6 * time.Second
	// timeout bounds one heartbeat; the next poll tries again.
	timeout = 5 * time.Second
	// states of a group in which it answers nobody: joins in the first, syncs in the second
	preparing  = "PreparingRebalance"
	completing = "CompletingRebalance"
)

// Roll hears who asks to join groups, and vouches for them while they wait.
type Roll struct {
	cluster *kfake.Cluster
	logger  *slog.Logger
	client  *kgo.Client
	stop    context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex // guards what follows; never held while the broker is asked
	groups map[string]group
}

// group is the members of one whose latest join or sync may wait for its answer, by their ids.
type group map[string]request

// request is such a join or sync.
type request struct {
	heard  time.Time
	until  time.Time // when its member would have asked again; zero: the broker lets nobody wait for so long
	waits  string    // the state of the group in which it waits; none: it does not
	looked bool      // at the group since
	epoch  int32     // of the group then
}

// Keep starts to call the roll of a broker, until Close. client says how the broker is reached.
func Keep(cluster *kfake.Cluster, logger *slog.Logger, client ...kgo.Opt) (*Roll, error) {
	r := &Roll{cluster: cluster, logger: logger, done: make(chan struct{}), groups: map[string]group{}}
	var err error
	if r.client, err = kgo.NewClient(client...); err != nil {
		return nil, fmt.Errorf("making kafka client: %w", err)
	}
	for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup} {
		cluster.ControlKey(int16(key), r.hear)
	}
	var life context.Context
	life, r.stop = context.WithCancel(context.Background())
	go r.run(life)
	return r, nil
}

// Close ends the roll. It must be called before the broker is closed.
func (r *Roll) Close() {
	r.stop()
	<-r.done
	r.client.Close()
}

// hear notes a request and leaves it to the broker.
func (r *Roll) hear(heard kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // the broker's signature
	now := time.Now()
	switch q := heard.(type) {
	case *kmsg.JoinGroupRequest:
		if q.MemberID != "" { // who has no id yet asks for one and joins with it
			r.note(q.Group, q.MemberID, request{heard: now, waits: preparing,
				until: now.Add(time.Duration(q.RebalanceTimeoutMillis)*time.Millisecond + joinGrace)})
		}
	case *kmsg.SyncGroupRequest:
		r.note(q.Group, q.MemberID, request{heard: now, waits: completing})
	}
	return nil, nil, false
}

func (r *Roll) note(name, member string, q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups[name] == nil {
		r.groups[name] = group{}
	}
	if !q.heard.Before(r.groups[name][member].heard) {
		r.groups[name][member] = q
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

// call vouches for the members of a group that wait.
func (r *Roll) call(life context.Context, name string) {
	asked := time.Now()
	info := r.cluster.GroupInfo(name)
	if info == nil {
		info = &kfake.GroupInfo{Group: name}
	}
	for _, id := range r.waiting(info, asked) {
		if err := r.vouch(life, info, id); err != nil && life.Err() == nil {
			r.logger.Warn("vouching for a group member that waits failed", "group", name, "member", id, "error", err)
			r.note(name, id, request{heard: asked}) // for the next look, if nothing is heard meanwhile
		}
	}
}

// waiting returns who may have waited since the last look, and forgets who no longer does; info is not older than asked.
func (r *Roll) waiting(info *kfake.GroupInfo, asked time.Time) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[info.Group]
	members := map[string]bool{}
	for _, m := range info.Members {
		members[m.MemberID] = true
	}
	for id, q := range g {
		if q.heard.After(asked) {
			continue
		}
		if members[id] && (q.until.IsZero() || asked.Before(q.until)) {
			ids = append(ids, id)
			if info.State == q.waits && (!q.looked || info.Epoch == q.epoch) {
				q.looked, q.epoch = true, info.Epoch
				g[id] = q
				continue
			}
		}
		delete(g, id)
	}
	if len(g) == 0 {
		delete(r.groups, info.Group)
	}
	return ids
}

// vouch gives a sign of life on a member's behalf. If the group went on since it was looked at, the broker refuses it: it dropped the
// member, or heard it ask again.
func (r *Roll) vouch(life context.Context, info *kfake.GroupInfo, id string) error {
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	q := kmsg.NewPtrHeartbeatRequest()
	q.Group, q.MemberID, q.Generation = info.Group, id, info.Epoch
	if _, err := q.RequestWith(ctx, r.client); err != nil {
		return fmt.Errorf("sending heartbeat: %w", err)
	}
	return nil
}
