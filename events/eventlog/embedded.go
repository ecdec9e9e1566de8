package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hoplog/hoplog/events/eventlog/attendance"
	"github.com/hoplog/hoplog/events/eventlog/segments"
)

// EmbeddedConfig describes the broker of a single machine.
type EmbeddedConfig struct {
	Dir  string // its data, used by nobody else
	Addr string // host:port to listen on; the host must be a loopback address, for nobody authenticates. Port 0: any
	// ClickRetention is how long clicks stay at least; default 30 days. See retention.go.
	ClickRetention time.Duration
	// TrimEvery is how often expired records are looked for; default 1 h.
	TrimEvery time.Duration
	// Progress, if not nil, hears while the files are verified how many bytes are read of how many.
	Progress func(done, total int64)
	// Full, if not nil, says why nothing may be written to the disk, nil when there is room. It is asked often.
	Full func() error
}

// Embedded is a broker in this process that speaks the Kafka protocol on loopback: franz-go's kfake with a data directory
// and synchronous writes. What it acknowledged survives kill -9. One per directory, guarded by a file lock that dies with
// the process. Its files are verified before it opens them; see verify.go.
type Embedded struct {
	cluster  *kfake.Cluster
	lock     *flock.Flock
	addr     string
	log      *Log // of the broker's own attendants
	recorder *recorder
	trimmer  *trimmer
	guard    *fullGuard
	roll     *attendance.Roll
	once     sync.Once
}

const (
	// embeddedClusterID tells clients that they speak to the embedded broker.
	embeddedClusterID = "hoplog-embedded"
	lockFile          = "LOCK"
	// segmentBytes bounds the memory of a start, which reads segment by segment (a start on 1.8 GB: 0.26 GB of memory;
	// with the broker's default of 100 MiB 1.4 GB).
	segmentBytes = 16 << 20
)

// StartEmbedded locks the directory, verifies and loads what it holds, and listens. ErrLocked when another process uses it,
// ErrDamaged when its files hold what no crash leaves behind.
func StartEmbedded(cfg EmbeddedConfig, logger *slog.Logger) (*Embedded, error) {
	setDefault(&cfg.ClickRetention, clickRetention)
	setDefault(&cfg.TrimEvery, time.Hour)
	if err := checkLoopback(cfg.Addr); err != nil {
		return nil, err
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	e := &Embedded{lock: lock}
	if err := e.start(cfg, logger); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return e, nil
}

func (e *Embedded) start(cfg EmbeddedConfig, logger *slog.Logger) error {
	data := filepath.Join(cfg.Dir, logDir)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return fmt.Errorf("making the embedded broker's directory: %w", err)
	}
	// What the broker saved at a clean stop about members and fetch sessions: all of them ended with the old process.
	if err := os.Remove(filepath.Join(data, "session_state.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing old sessions: %w", err)
	}
	began := time.Now()
	report, acknowledged, err := verifyFiles(cfg, logger)
	if err != nil {
		return err
	}
	verified := time.Since(began)
	if e.cluster, err = startCluster(cfg, data, logger); err != nil {
		return fmt.Errorf("starting the embedded broker in %s on %s: %w", cfg.Dir, cfg.Addr, err)
	}
	e.addr = e.cluster.ListenAddrs()[0]
	if cfg.Full == nil {
		cfg.Full = func() error { return nil }
	}
	e.guard = guardRoom(e.cluster, cfg.Full)
	if err := e.attend(cfg, report, acknowledged, logger); err != nil {
		e.guard.close()
		e.cluster.Close()
		return err
	}
	logger.Info("embedded broker started", "addr", e.addr, "dir", cfg.Dir, "bytes", report.Bytes,
		"verified", verified.Round(time.Millisecond), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

func startCluster(cfg EmbeddedConfig, data string, logger *slog.Logger) (*kfake.Cluster, error) {
	return kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.ClusterID(embeddedClusterID),
		kfake.DataDir(data),
		kfake.SyncWrites(),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) { return net.Listen(network, cfg.Addr) }),
		kfake.WithLogger(brokerLogger{logger}),
		kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.BrokerConfigs(map[string]string{
			"log.segment.bytes":            strconv.Itoa(segmentBytes),
			"log.retention.ms":             "-1", // never by the broker: see retention.go
			"log.retention.bytes":          "-1",
			"group.min.session.timeout.ms": "100",
		}),
	)
}

// attend starts what looks after the broker: the record of what it acknowledged, the trimmer, and the roll of group members.
func (e *Embedded) attend(cfg EmbeddedConfig, report *segments.Report, before segments.Acknowledged, logger *slog.Logger) error {
	log, err := Open(Config{Brokers: []string{e.addr}, ClientID: "hoplog-embedded"}, logger)
	if err != nil {
		return err
	}
	ctx, cancel := withDeadline(context.Background())
	defer cancel()
	if err := compareLoaded(ctx, log, report); err != nil {
		log.Close()
		return err
	}
	if e.roll, err = attendance.Keep(e.cluster, logger, kgo.SeedBrokers(e.addr), kgo.ClientID(embeddedClusterID)); err != nil {
		log.Close()
		return err
	}
	e.log = log
	e.recorder = startRecorder(log, cfg.Dir, before, logger)
	e.trimmer = startTrimmer(log, e.recorder, cfg, logger)
	return nil
}

// Addr is where the broker listens.
func (e *Embedded) Addr() string { return e.addr }

// Close stops the broker cleanly and unlocks the directory. Clients should be closed before. Idempotent.
func (e *Embedded) Close() error {
	var err error
	e.once.Do(func() {
		e.roll.Close()
		e.trimmer.close()
		e.recorder.close()
		e.log.Close()
		e.guard.close()
		e.cluster.Close()
		if err = e.lock.Unlock(); err != nil {
			err = fmt.Errorf("unlocking the embedded broker's directory: %w", err)
		}
	})
	return err
}

func lockDir(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the embedded broker's directory: %w", err)
	}
	lock := flock.New(filepath.Join(dir, lockFile))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking the embedded broker's directory: %w", err)
	}
	if !got {
		return nil, fmt.Errorf("%w: %s is held: stop the other process or choose another directory", ErrLocked, lock.Path())
	}
	return lock, nil
}

func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("embedded broker address %q: %w", addr, err)
	}
	ips := []net.IP{net.ParseIP(host)}
	if ips[0] == nil {
		if ips, err = net.LookupIP(host); err != nil {
			return fmt.Errorf("embedded broker address %q: %w", addr, err)
		}
	}
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return fmt.Errorf("embedded broker address %q is not a loopback address", addr)
		}
	}
	return nil
}
