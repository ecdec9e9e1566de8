package virtualkafka

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// errDown is what a dial meets while a node has no network.
var errDown = errors.New("virtual network is down")

// Traffic names the requests that a fault concerns.
type Traffic struct {
	Kinds []Kind // none: all
	Topic string // of produce and fetch requests; "": all
}

func (t Traffic) matches(kind Kind, topic string) bool {
	if t.Topic != "" && t.Topic != topic {
		return false
	}
	for _, k := range t.Kinds {
		if k == kind {
			return true
		}
	}
	return len(t.Kinds) == 0
}

// Fate is what befalls one append.
type Fate struct {
	// Lose cuts the connection before the request arrives; LoseAnswer after the broker has carried it out.
	Lose, LoseAnswer bool
	// Delay is how much later the request arrives, DelayAnswer how much later its answer does.
	Delay, DelayAnswer time.Duration
}

// Node is one process's place on the network. Its methods may be called from any goroutine of the bubble.
type Node struct {
	broker *Broker
	rng    *rand.Rand // of mu

	mu      sync.Mutex
	conns   map[*conn]struct{}
	holds   []hold
	fates   []fate
	changed chan struct{} // closed when holds end early
	down    time.Time     // dials fail until then
	dead    bool
}

// hold keeps traffic back until a time; with slow, each answer only for that long.
type hold struct {
	Traffic
	until time.Time
	slow  time.Duration
}

type fate struct {
	topic string
	Fate
}

// Latency of one hop. Every hop draws its own, so that hardly two things happen at one instant of the bubble's clock.
const (
	leastLatency = 150 * time.Microsecond
	mostLatency  = 1500 * time.Microsecond
)

// Node makes a place on the broker's network whose latencies are drawn from rng.
func (b *Broker) Node(rng *rand.Rand) *Node {
	return &Node{broker: b, rng: rng, conns: map[*conn]struct{}{}, changed: make(chan struct{})}
}

// Dial connects to the broker.
func (n *Node) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	latency, seed := n.latency(), [2]uint64{n.rng.Uint64(), n.rng.Uint64()}
	n.mu.Unlock()
	time.Sleep(latency)
	if n.isDown() {
		return nil, errDown
	}
	there, err := n.broker.network.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	near, here := net.Pipe()
	c := &conn{node: n, client: here, broker: there, cut: make(chan struct{}), rng: rand.New(rand.NewPCG(seed[0], seed[1])),
		answers: rand.New(rand.NewPCG(seed[1], seed[0]))}
	n.mu.Lock()
	n.conns[c] = struct{}{}
	n.mu.Unlock()
	n.broker.carried.Go(c.requests)
	n.broker.carried.Go(c.replies)
	return near, nil
}

func (n *Node) latency() time.Duration { return drawLatency(n.rng) }

func drawLatency(rng *rand.Rand) time.Duration {
	return leastLatency + time.Duration(rng.Int64N(int64(mostLatency-leastLatency)))
}

func (n *Node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead || time.Now().Before(n.down)
}

// Hold keeps requests and answers of this traffic back for a while.
func (n *Node) Hold(t Traffic, d time.Duration) { n.add(hold{Traffic: t, until: time.Now().Add(d)}) }

// Slow makes each answer of this traffic come later, for a while.
func (n *Node) Slow(t Traffic, by, d time.Duration) {
	n.add(hold{Traffic: t, until: time.Now().Add(d), slow: by})
}

func (n *Node) add(h hold) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holds = append(n.holds, h)
}

// Befall decides what becomes of the next append to a topic that has no fate yet.
func (n *Node) Befall(topic string, f Fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fates = append(n.fates, fate{topic, f})
}

// Cut breaks all connections. What travels is lost, or with arrive, requests still arrive.
func (n *Node) Cut(arrive bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.end(arrive)
	}
}

// Down cuts the node off for a while.
func (n *Node) Down(d time.Duration, arrive bool) {
	n.mu.Lock()
	n.down = time.Now().Add(d)
	n.mu.Unlock()
	n.Cut(arrive)
}

// Kill ends the node for good, as the end of its process does.
func (n *Node) Kill(arrive bool) {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()
	n.Cut(arrive)
}

// Heal ends all faults of a node that was not killed.
func (n *Node) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holds, n.fates, n.down = nil, nil, time.Time{}
	close(n.changed)
	n.changed = make(chan struct{})
}

// held returns how long traffic is still kept back, 0 if it is not, and what tells of an early end.
func (n *Node) held(kind Kind, topic string) (time.Duration, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, wait, kept := time.Now(), time.Duration(0), n.holds[:0]
	for _, h := range n.holds {
		if !now.Before(h.until) {
			continue
		}
		kept = append(kept, h)
		if h.slow == 0 && h.matches(kind, topic) {
			wait = max(wait, h.until.Sub(now))
		}
	}
	n.holds = kept
	return wait, n.changed
}

func (n *Node) slowness(kind Kind, topic string) (by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.holds {
		if h.slow > 0 && time.Now().Before(h.until) && h.matches(kind, topic) {
			by = max(by, h.slow)
		}
	}
	return by
}

// fateOf takes the fate of an append that is on its way.
func (n *Node) fateOf(topic string) Fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, f := range n.fates {
		if f.topic == topic {
			n.fates = append(n.fates[:i], n.fates[i+1:]...)
			return f.Fate
		}
	}
	return Fate{}
}
