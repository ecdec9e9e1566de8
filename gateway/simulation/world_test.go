//go:build synctests

package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/virtualkafka"
)

// partitions of the links' topics. Two are the fewest that tell partitions apart.
const partitions = 2

// world is one seed's: a broker, processes, clients, and the truth about the log.
type world struct {
	t      *testing.T
	rng    *rand.Rand // of the schedule of faults
	logger *slog.Logger
	trace  trace

	broker  *virtualkafka.Broker
	writers []*process
	apis    []*process
	node    *process // a redirect node
	truth   *truth
	book    *book

	// ahead is how far all clocks are ahead of the bubble's, in nanoseconds: days that pass at once.
	ahead atomic.Int64

	nudged time.Time // when writers were last made to append
	joined time.Time // when the writers' group was last seen whole
	ends   string    // of the logs
	ended  time.Time // since when they are those

	ctx      context.Context // ends at the first failure
	cancel   context.CancelCauseFunc
	teardown sync.WaitGroup // of lives that were killed
}

// errDone ends a simulation that did not fail.
var errDone = errors.New("the simulation is over")

func newWorld(t *testing.T, seed uint64, root string) *world {
	w := &world{t: t, rng: generator(seed, 0), book: newBook()}
	w.trace.began = time.Now()
	w.logger = slog.New(&w.trace)
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	broker, err := virtualkafka.Start(root, w.logger)
	w.must(err)
	w.broker = broker
	for i := range 2 {
		w.writers = append(w.writers, w.process(fmt.Sprintf("writer%d", i), roleWriter, generator(seed, 10+uint64(i))))
		w.apis = append(w.apis, w.process(fmt.Sprintf("api%d", i), roleAPI, generator(seed, 20+uint64(i))))
	}
	w.node = w.process("node", roleNode, generator(seed, 30))
	w.truth = w.watch(generator(seed, 40))
	return w
}

// generator is one of a seed's sources of randomness: what one draws does not depend on how much another does.
func generator(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

func (w *world) processes() []*process {
	return append(append(append([]*process{}, w.writers...), w.apis...), w.node)
}

// must ends the seed if the world itself cannot be built.
func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

// fail notes what is wrong and ends the schedule. The first failure counts.
func (w *world) fail(format string, args ...any) {
	w.trace.note("FAILED: "+format, args...)
	w.cancel(fmt.Errorf(format, args...))
}

// failure returns what was wrong, nil if nothing was.
func (w *world) failure() error {
	if cause := context.Cause(w.ctx); !errors.Is(cause, errDone) {
		return cause
	}
	return nil
}

// now is the true time, which clocks may miss.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// eventually waits until the probe says nil, for as long as a healed world may take.
func (w *world) eventually(what string, within time.Duration, probe func() error) bool {
	var err error
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if w.ctx.Err() != nil {
			return false
		}
		if err = probe(); err == nil {
			return true
		}
	}
	w.fail("%s: not within %v of the end of all faults: %v", what, within, err)
	return false
}

// start makes the topics and starts every process.
func (w *world) start() {
	w.must(w.truth.log.WaitReady(w.ctx, 1))
	w.must(w.truth.log.EnsureTopics(w.ctx, eventlog.TopicPlan{Partitions: partitions}))
	w.broker.Know(eventlog.TopicNames()...)
	w.truth.start()
	for _, p := range w.processes() {
		p.start()
	}
}

// stop ends everything. The stores' file systems are left as a clean stop leaves them.
func (w *world) stop(fresh []*process) {
	for _, p := range append(w.processes(), fresh...) {
		p.stop()
	}
	w.teardown.Wait()
	w.truth.stop()
	w.cancel(errDone)
	if err := w.broker.Close(); err != nil {
		w.t.Error(err)
	}
}

// trace is the history of a seed: what happened last, shown when it fails. It takes the product's log too.
type trace struct {
	began time.Time
	mu    sync.Mutex
	lines []string
}

// traceLines is how much of the history is kept.
const traceLines = 4000

func (t *trace) note(format string, args ...any) {
	line := fmt.Sprintf("%9.3fs ", time.Since(t.began).Seconds()) + fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 2*traceLines {
		t.lines = append(t.lines[:0], t.lines[traceLines:]...)
	}
	t.lines = append(t.lines, line)
}

func (t *trace) last(n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[max(0, len(t.lines)-n):]
}

// Enabled implements slog.Handler.
func (t *trace) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (t *trace) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	t.note("%s: %s", r.Level, line)
	return nil
}

// WithAttrs implements slog.Handler. What the Kafka client says of every broken connection would hide the rest.
func (t *trace) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "from" {
			return slog.DiscardHandler
		}
	}
	return t
}

// WithGroup implements slog.Handler.
func (t *trace) WithGroup(string) slog.Handler { return t }
