package systemtest

import (
	"bufio"
	wire "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Sizes of the load. The spool is so large that nothing is dropped while the broker is away: visitors pause when half of it waits.
const (
	clicksShort   = 20_000
	clicksVisitor = 8
	clicksAtOnce  = 16 // requests of a visitor on their way
	clicksSpool   = 256 << 20
	// The pace on average, so that there is time for kills: what was missed while the node was away is made up for at once.
	clicksPace  = 10_000           // visits a second
	clicksLeast = 12 * time.Second // of a short run
)

// clicksRun is visitors who number their visits, and somebody who kills what records them.
type clicksRun struct {
	*fleet
	t     *testing.T
	want  int64
	pace  float64 // visits a second
	began time.Time
	seed  uint64
	path  string

	next     atomic.Int64
	answered *bitmap // by number
	redirect atomic.Int64
	cut      atomic.Int64 // asked and not answered
	wrong    atomic.Int64
	paused   atomic.Bool
	kills    [3]atomic.Int64 // of node, sink and broker
}

// bitmap is a set of numbers below its size. Each number is added by one goroutine; Words are shared.
type bitmap struct{ words []atomic.Uint64 }

func newBitmap(size int64) *bitmap { return &bitmap{make([]atomic.Uint64, size/64+1)} }

func (b *bitmap) add(n int64)      { b.words[n/64].Or(1 << (n % 64)) }
func (b *bitmap) has(n int64) bool { return b.words[n/64].Load()&(1<<(n%64)) != 0 }

// TestClicksUnderKill has visitors make HOPLOG_CLICKS clicks while kill -9 hits the redirect node, the click sink and the
// broker at random intervals. Each answered visit is counted once, each that got no answer at most once.
func TestClicksUnderKill(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: processes are killed for a while, too long for -short")
	}
	r := newClicksRun(t)
	r.began = time.Now()
	var visitors sync.WaitGroup
	for range clicksVisitor {
		visitors.Go(r.visitor)
	}
	done := make(chan struct{})
	go func() { visitors.Wait(); close(done) }()
	var watching sync.WaitGroup
	watching.Go(func() { r.watch(done) })
	r.killUntil(done)
	watching.Wait()
	t.Logf("%d visits in %s, %d answered, %d cut off; killed: node %d times, sink %d, broker %d", r.next.Load(), time.Since(r.began).Round(time.Second), r.redirect.Load(), r.cut.Load(),
		r.kills[0].Load(), r.kills[1].Load(), r.kills[2].Load())
	if r.wrong.Load() > 0 {
		t.Errorf("%d wrong answers", r.wrong.Load())
	}
	r.count()
}

func newClicksRun(t *testing.T) *clicksRun {
	t.Helper()
	r := &clicksRun{t: t, want: clicksShort}
	if n, err := strconv.ParseInt(os.Getenv("HOPLOG_CLICKS"), 10, 64); err == nil && n > 0 {
		r.want = n
	}
	seed, err := strconv.ParseUint(os.Getenv("HOPLOG_CLICKS_SEED"), 10, 64)
	if err != nil || seed == 0 {
		seed = uint64(rand.Uint32())
	}
	t.Logf("seed %d (again: make clicks CLICKS=%d SEED=%[1]d)", seed, r.want)
	r.pace = min(clicksPace, float64(r.want)/clicksLeast.Seconds())
	r.seed = seed
	r.answered = newBitmap(r.want + clicksVisitor*clicksAtOnce)
	r.fleet = startFleet(t, "--partitions", "4")
	node := r.roles["redirect"]
	node.args = append(node.args, "--node", "clicks-node", "--spool-bytes", strconv.Itoa(clicksSpool))
	node.kill()
	node.start()
	r.path = "/" + r.made(fields{"target": "https://example.com/clicks"})
	return r
}

// visitor visits until there are enough visits, many at once, on one connection after the other.
func (r *clicksRun) visitor() {
	for r.next.Load() < r.want {
		if r.rests() || r.visits() != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// rests reports whether visitors wait: for the spool, or for their pace.
func (r *clicksRun) rests() bool {
	return r.paused.Load() || float64(r.next.Load()) > r.pace*time.Since(r.began).Seconds()
}

// visits visits until the connection ends, or visitors wait, or there are enough.
func (r *clicksRun) visits() error {
	conn, err := net.DialTimeout("tcp", r.ports["redirect"], time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 16<<10)
	var out []byte
	for !r.rests() && r.next.Load() < r.want {
		first := r.next.Add(clicksAtOnce) - clicksAtOnce
		out = out[:0]
		for i := range int64(clicksAtOnce) {
			out = fmt.Appendf(out, "GET %s?utm_content=%d HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n\r\n", r.path, first+i, r.domain(), browser)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Write(out); err != nil {
			r.cut.Add(clicksAtOnce) // some may have arrived
			return err
		}
		for i := range int64(clicksAtOnce) {
			if err := r.answer(in, first+i); err != nil {
				r.cut.Add(clicksAtOnce - i)
				return err
			}
		}
	}
	return nil
}

// answer reads the answer to a visit. Nothing but a redirect is right.
func (r *clicksRun) answer(in *bufio.Reader, number int64) error {
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return err
	}
	if location := resp.Header.Get("Location"); resp.StatusCode != http.StatusFound || !strings.HasPrefix(location, "https://example.com/clicks?") {
		r.wrong.Add(1)
		return fmt.Errorf("visit %d: %d %s", number, resp.StatusCode, location)
	}
	r.answered.add(number)
	r.redirect.Add(1)
	return nil
}

// watch pauses the visitors while much waits in the spool, and shows how far they are, until done.
func (r *clicksRun) watch(done chan struct{}) {
	var told time.Time
	for {
		select {
		case <-done:
			return
		case <-time.After(100 * time.Millisecond):
		}
		var s struct {
			Clicks *struct {
				Waiting int `json:"waiting_bytes"`
				Spool   int `json:"spool_bytes"`
			}
		}
		if _, body := r.get(r.roles["redirect"].ports["admin"], "/status"); json.Unmarshal([]byte(body), &s) == nil && s.Clicks != nil {
			r.paused.Store(s.Clicks.Waiting > s.Clicks.Spool/2)
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			r.progress()
		}
	}
}

func (r *clicksRun) progress() {
	const width = 30
	n := min(r.next.Load(), r.want)
	took := time.Since(r.began)
	left := time.Duration(float64(took) * float64(r.want-n) / float64(max(n, 1)))
	bar := strings.Repeat("#", int(width*n/r.want))
	fmt.Fprintf(os.Stderr, "[%-*s] %d of %d visits, %.0f/s, about %s left\n", width, bar, n, r.want, float64(n)/took.Seconds(), left.Round(time.Second))
}

// killUntil kills the node, the sink and the broker, each at random intervals, and starts them again after a while.
func (r *clicksRun) killUntil(done chan struct{}) {
	var killers sync.WaitGroup
	for i, k := range []struct {
		pause       time.Duration // at most, and half of it at least
		kill, start func()
	}{
		{6 * time.Second, r.roles["redirect"].kill, r.roles["redirect"].launch},
		{8 * time.Second, r.roles["analytics"].kill, r.roles["analytics"].launch},
		{20 * time.Second, r.broker.Kill, r.broker.Restart},
	} {
		random := rand.New(rand.NewPCG(r.seed, uint64(i)))
		killers.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(k.pause/2 + time.Duration(random.Int64N(int64(k.pause/2)))):
				}
				k.kill()
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
				k.start()
				r.kills[i].Add(1)
			}
		})
	}
	killers.Wait()
}

// count waits until all has arrived, and compares ClickHouse with the answers, one by one.
func (r *clicksRun) count() {
	for _, p := range r.roles {
		p.ready()
	}
	result := r.clicksArrive(r.roles["redirect"])
	counted := newBitmap(r.want + clicksVisitor*clicksAtOnce)
	rows, doubled, unasked := r.stored(counted)
	lost, unanswered := int64(0), int64(0)
	for n := range r.next.Load() {
		switch {
		case r.answered.has(n) && !counted.has(n):
			lost++
		case !r.answered.has(n) && counted.has(n):
			unanswered++
		}
	}
	r.t.Logf("%d visits answered, %d clicks counted, %d of them of visits whose answer was cut off; log %d, raw %d, sums %d", r.redirect.Load(), rows, unanswered,
		result.LogClicks, result.RawClicks, result.AggregateClicks)
	if lost+doubled+unasked > 0 || result.RawClicks != int(rows) || result.LogClicks != int(rows) || result.AggregateClicks != int(rows) {
		r.t.Errorf("%d lost, %d doubled, %d of no visit; reconcile %+v", lost, doubled, unasked, result)
	}
	holes := r.sql("SELECT count() FROM (SELECT max(sequence) - count() AS missing FROM hoplog.clicks_raw WHERE node = 'clicks-node' GROUP BY boot, partition) WHERE missing != 0 FORMAT TSV")
	if strings.TrimSpace(holes) != "0" {
		r.t.Errorf("%s lines of sequences have holes", holes)
	}
}

// stored reads the number of each click that ClickHouse has.
func (r *clicksRun) stored(into *bitmap) (rows, doubled, unasked int64) {
	query := "SELECT toUInt32OrZero(utm_content) FROM hoplog.clicks_raw WHERE node = 'clicks-node' FORMAT RowBinary"
	client := &http.Client{Timeout: 10 * time.Minute}
	resp, err := client.Post("http://"+r.ports["clickhouse"]+"/?"+url.Values{"max_execution_time": {"0"}}.Encode(), "text/plain", strings.NewReader(query))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 1<<20)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(in)
		r.t.Fatalf("%d %.300s", resp.StatusCode, text)
	}
	for {
		var number [4]byte
		if _, err := io.ReadFull(in, number[:]); errors.Is(err, io.EOF) {
			return rows, doubled, unasked
		} else if err != nil {
			r.t.Fatal(err)
		}
		rows++
		n := int64(wire.LittleEndian.Uint32(number[:]))
		switch {
		case n >= r.next.Load():
			unasked++
		case into.has(n):
			doubled++
		default:
			into.add(n)
		}
	}
}
