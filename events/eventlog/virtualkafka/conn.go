package virtualkafka

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// conn is one connection: a pipe to the client, a pipe to the broker, and two goroutines that carry frames between them.
type conn struct {
	node           *Node
	client, broker net.Conn
	rng, answers   *rand.Rand // of the two goroutines

	once   sync.Once
	cut    chan struct{} // closed when the connection is broken
	arrive bool          // requests that travel arrive although it is; set before cut is closed

	mu    sync.Mutex
	topic string
	asked []exchange // requests that the broker has, oldest first; it answers in order
}

// exchange is what the answer to a request inherits from it.
type exchange struct {
	kind Kind
	fate Fate
}

// end breaks the connection. The client sees it at once.
func (c *conn) end(arrive bool) {
	c.once.Do(func() {
		c.arrive = arrive
		close(c.cut)
		_ = c.client.Close()
	})
}

func (c *conn) isCut() bool {
	select {
	case <-c.cut:
		return true
	default:
		return false
	}
}

// requests carries requests until the client closes its end. The last one may arrive later than that.
func (c *conn) requests() {
	defer func() {
		_ = c.broker.Close()
		c.end(false)
		c.node.mu.Lock()
		delete(c.node.conns, c)
		c.node.mu.Unlock()
	}()
	for {
		f, err := readFrame(c.client)
		if err != nil {
			return
		}
		kind := f.kind()
		topic := c.learn(f, kind)
		x := exchange{kind: kind}
		if kind == Produce {
			x.fate = c.node.fateOf(topic)
		}
		c.travel(kind, topic, drawLatency(c.rng)+x.fate.Delay)
		if x.fate.Lose {
			c.end(false)
		}
		if c.isCut() && !c.arrive {
			return
		}
		c.mu.Lock()
		c.asked = append(c.asked, x)
		c.mu.Unlock()
		if _, err := c.broker.Write(f); err != nil {
			return
		}
	}
}

// replies carries answers until the broker closes its end.
func (c *conn) replies() {
	defer c.end(false)
	for {
		f, err := readFrame(c.broker)
		if err != nil {
			return
		}
		c.mu.Lock()
		x, topic := c.asked[0], c.topic
		c.asked = c.asked[1:]
		c.mu.Unlock()
		if x.fate.LoseAnswer {
			c.end(false)
		}
		c.travel(x.kind, topic, drawLatency(c.answers)+x.fate.DelayAnswer+c.node.slowness(x.kind, topic))
		if c.isCut() {
			continue // the broker is not to block on a client that is gone
		}
		if _, err := c.client.Write(f); err != nil {
			c.end(true)
		}
	}
}

// travel takes time: a hop, and as long as the node's traffic of this kind is held. A broken connection ends it, unless
// what travels is to arrive all the same.
func (c *conn) travel(kind Kind, topic string, hop time.Duration) {
	cut := c.cut
	var healed <-chan struct{}
	for wait := hop; wait > 0; wait, healed = c.node.held(kind, topic) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-healed:
			timer.Stop()
		case <-c.node.broker.closed:
			timer.Stop()
			return
		case <-cut:
			timer.Stop()
			if !c.arrive {
				return
			}
			cut = nil
		}
	}
}

// learn returns the topic that the connection is for, once a request has named it.
func (c *conn) learn(f frame, kind Kind) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topic == "" && (kind == Produce || kind == Fetch) {
		c.topic = f.topic(c.node.broker.topicOf)
	}
	return c.topic
}
