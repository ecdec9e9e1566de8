package virtualkafka

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hoplog/hoplog/events/eventlog/attendance"
)

// port is where the broker listens on its network, which nobody else is on.
const port = 9092

// clusterID is that of the product's embedded broker: clients set up topics as they do there.
const clusterID = "hoplog-embedded"

// Broker is one broker with its network. Its methods are called from the bubble, by one goroutine at a time.
type Broker struct {
	network kfake.VirtualNetwork
	root    string
	life    int
	logger  *slog.Logger
	cluster *kfake.Cluster
	roll    *attendance.Roll

	mu     sync.Mutex
	topics map[[16]byte]string

	closed  chan struct{}
	carried sync.WaitGroup // goroutines of connections
}

// Start starts a broker whose data lies in a directory below root.
func Start(root string, logger *slog.Logger) (*Broker, error) {
	b := &Broker{root: root, logger: logger, topics: map[[16]byte]string{}, closed: make(chan struct{})}
	if err := os.MkdirAll(b.dir(), 0o755); err != nil {
		return nil, fmt.Errorf("making the virtual broker's directory: %w", err)
	}
	return b, b.start()
}

func (b *Broker) dir() string { return filepath.Join(b.root, strconv.Itoa(b.life)) }

func (b *Broker) start() (err error) {
	b.cluster, err = kfake.NewCluster(
		kfake.Ports(port),
		kfake.ClusterID(clusterID),
		kfake.ListenFn(b.network.Listen),
		kfake.DataDir(b.dir()),
		kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.BrokerConfigs(map[string]string{
			"log.retention.ms":             "-1",
			"log.retention.bytes":          "-1",
			"group.min.session.timeout.ms": "100",
		}),
	)
	if err != nil {
		return fmt.Errorf("starting the virtual broker: %w", err)
	}
	if b.roll, err = attendance.Keep(b.cluster, b.logger, kgo.SeedBrokers(b.Addr()), kgo.Dialer(b.network.DialContext)); err != nil {
		b.cluster.Close()
		return fmt.Errorf("calling the roll of the virtual broker: %w", err)
	}
	return nil
}

// Addr is what clients dial through a Node.
func (b *Broker) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Know learns the ids of topics, so that frames can be told by topic.
func (b *Broker) Know(topics ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range topics {
		if info := b.cluster.TopicInfo(name); info != nil {
			b.topics[info.TopicID] = name
		}
	}
}

func (b *Broker) topicOf(id [16]byte) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.topics[id]
}

// Stop ends the broker and all its connections. With crash, what it says at a clean stop about members, sessions and
// producers is lost: the next start sees the directory as it was before. The bubble must be at rest (synctest.Wait).
func (b *Broker) Stop(crash bool) error {
	b.roll.Close()
	was := b.dir()
	if !crash {
		b.cluster.Close()
		b.life++
		return os.Rename(was, b.dir())
	}
	b.life++
	err := os.CopyFS(b.dir(), os.DirFS(was))
	b.cluster.Close()
	return errors.Join(err, os.RemoveAll(was))
}

// Start starts a stopped broker on its data. As in the product, members and fetch sessions of its former life are
// forgotten.
func (b *Broker) Start() error {
	if err := os.Remove(filepath.Join(b.dir(), "session_state.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing old sessions: %w", err)
	}
	return b.start()
}

// Rebalancing reports whether a consumer group waits for its members to join or to sync. It may do so for ever, until a restart:
// when the session of a member ends that waits for the answer to a sync, the broker counts one join too few from then on. Then it
// waits for the rebalance timeout after each join, and two members that give up and join again by turns never let it run out.
func (b *Broker) Rebalancing(group string) bool {
	info := b.cluster.GroupInfo(group)
	return info != nil && (info.State == "PreparingRebalance" || info.State == "CompletingRebalance")
}

// Close ends the broker and its network for good and removes its data. All clients must be closed.
func (b *Broker) Close() error {
	b.roll.Close()
	b.cluster.Close()
	close(b.closed)
	b.carried.Wait()
	return os.RemoveAll(b.root)
}
