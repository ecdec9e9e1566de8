package eventlog

import (
	"context"
	"log/slog"
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
	logger  *slog.Logger
	stop    context.CancelFunc
	done    chan struct{}
}

const fullPoll = 50 * time.Millisecond

// guardRoom starts the guard. full says why nothing may be written, nil when there is room.
func guardRoom(cluster *kfake.Cluster, full func() error, logger *slog.Logger) *fullGuard {
	g := &fullGuard{cluster: cluster, full: full, logger: logger, done: make(chan struct{})}
	var life context.Context
	life, g.stop = context.WithCancel(context.Background())
	g.look(false)
	go g.run(life)
	return g
}

func (g *fullGuard) close() {
	g.stop()
	<-g.done
}

func (g *fullGuard) run(life context.Context) {
	defer close(g.done)
	refusing := g.full() != nil
	for {
		select {
		case <-life.Done():
			return
		case <-time.After(fullPoll):
			refusing = g.look(refusing)
		}
	}
}

// look begins to refuse appends when the disk became full; they end to be refused by themselves. It returns whether they are.
func (g *fullGuard) look(refusing bool) bool {
	full := g.full() != nil
	if full && !refusing {
		g.cluster.ControlKey(int16(kmsg.Produce), g.refuse)
	}
	return full
}

// refuse answers an append while the disk is full, and is dropped with the first that finds room.
func (g *fullGuard) refuse(request kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // the broker's signature
	produce, ok := request.(*kmsg.ProduceRequest)
	why := g.full()
	if !ok || why == nil {
		g.cluster.DropControl()
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
