package app

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// startBroker starts the embedded broker, which verifies the log's files first. A start that damage forbids says where it is.
func (n *node) startBroker(context.Context) error {
	told := &verifying{node: n, bar: newProgress(os.Stderr), last: time.Now()}
	broker, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: n.dir("kafka"), Addr: n.GetString(setKafka),
		ClickRetention: n.GetDuration("click-retention"), Progress: told.hear, Full: n.disk.guard.Full}, n.logger)
	told.bar.end()
	if err != nil {
		return fmt.Errorf("starting embedded broker: %w", err)
	}
	n.onClose("embedded broker", broker.Close)
	return nil
}

// verifying shows how far the log's files are verified: a bar on a terminal, else a log line now and then.
type verifying struct {
	node *node
	bar  *progress
	last time.Time
}

const verifyingEvery = 2 * time.Second

func (v *verifying) hear(done, total int64) {
	if v.bar.bar == nil {
		v.bar.begin("verifying the log", total)
	}
	v.bar.set(done, total)
	if time.Since(v.last) >= verifyingEvery && done < total {
		v.last = time.Now()
		v.node.logger.Info("verifying the log", "bytes", done, "of", total)
	}
}
