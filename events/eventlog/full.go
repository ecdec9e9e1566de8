package eventlog

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fullGuard keeps the embedded broker from writing into a full disk: it ignores the error of a sync, and an append that fails
// half-way leaves it with files that are not as it remembers them. While there is no room, every append is refused with
// KAFKA_STORAGE_ERROR, which clients try again.
type fullGuard struct {
	cluster *kfake.Cluster
	full    func() error
	stop    context.CancelFunc
	done    chan struct{}
	// refusing: the broker asks refuse before it appends.
	refusing atomic.Bool
}

const fullPoll = 50 * time.Millisecond

// guardRoom starts the guard. full says why nothing may be written, nil when there is room.
func guardRoom(cluster *kfake.Cluster, full func() error) *fullGuard {
	g := &fullGuard{cluster: cluster, full: full, done: make(chan struct{})}
	var life context.Context
	life, g.stop = context.WithCancel(context.Background())
	g.look()
	go g.run(life)
	return g
}

func (g *fullGuard) close() {
	g.stop()
	<-g.done
}

func (g *fullGuard) run(life context.Context) {
	defer close(g.done)
	for {
		select {
		case <-life.Done():
			return
		case <-time.After(fullPoll):
			g.look()
		}
	}
}

// look has appends refused from when the disk became full; the first that finds room ends it.
func (g *fullGuard) look() {
	if g.full() != nil && g.refusing.CompareAndSwap(false, true) {
		g.cluster.ControlKey(int16(kmsg.Produce), g.refuse)
	}
}

// refuse answers an append while the disk is full, and is dropped with the first that finds room.
func (g *fullGuard) refuse(request kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // the broker's signature
	produce, ok := request.(*kmsg.ProduceRequest)
	why := g.full()
	if !ok || why == nil {
		g.cluster.DropControl()
		g.refusing.Store(false)
		return nil, nil, false
	}
	g.cluster.KeepControl()
	return refusal(produce, why.Error()), nil, true
}

func refusal(request *kmsg.ProduceRequest, why string) kmsg.Response {
	response := request.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range request.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition, partition.ErrorCode, partition.ErrorMessage = p.Partition, kerr.KafkaStorageError.Code, &why
			topic.Partitions = append(topic.Partitions, partition)
		}
		response.Topics = append(response.Topics, topic)
	}
	return response
}
