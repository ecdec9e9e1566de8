package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/loopback"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/projections"
)

// rig is `hoplog dev` in this process, without the ClickHouse engine, and its sub-commands.
type rig struct {
	t      *testing.T
	kafka  string
	domain string
}

func startDev(t *testing.T) *rig {
	t.Helper()
	var addrs []string
	for _, name := range []string{"API", "REDIRECT", "ADMIN", "KAFKA", "CLICKHOUSE"} {
		addrs = append(addrs, loopback.FreeAddr(t))
		t.Setenv("HOPLOG_"+name, addrs[len(addrs)-1])
	}
	t.Setenv("HOPLOG_SERVER", "http://"+addrs[0])
	t.Setenv("HOPLOG_ADMIN_KEY", "hop_test")
	t.Setenv("HOPLOG_KEY", "hop_test")
	_, port, _ := net.SplitHostPort(addrs[1])
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan string, 1)
	go func() {
		var out bytes.Buffer
		if code := run(ctx, []string{"dev", "--data", t.TempDir(), "--log-level", "error", "--partitions", "4", "--chdb", os.DevNull}, &out, &out); code != exitOK {
			ended <- out.String()
		}
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		if out := <-ended; out != "" {
			t.Errorf("dev failed: %s", out)
		}
	})
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get("http://" + addrs[2] + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return &rig{t: t, kafka: addrs[3], domain: "localhost:" + port}
			}
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("dev is not ready: %v", err)
		}
	}
}

// cli runs a sub-command and returns what it printed. want is its exit code and a part of what it says on stderr.
func (r *rig) cli(want int, says string, args ...string) string {
	r.t.Helper()
	var out, errs bytes.Buffer
	if code := run(r.t.Context(), args, &out, &errs); code != want || !strings.Contains(errs.String(), says) {
		r.t.Fatalf("hoplog %q: exit code %d, wanted %d and %q\n%s%s", args, code, want, says, out.String(), errs.String())
	}
	return out.String()
}

func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func (r *rig) link(args ...string) gateway.Link {
	r.t.Helper()
	return decoded[gateway.Link](r.t, r.cli(exitOK, "", append(args, "--json")...))
}

func TestCommands(t *testing.T) {
	r := startDev(t)
	t.Run("link", r.testLink)
	t.Run("list", r.testList)
	t.Run("domain", r.testDomain)
	t.Run("audit", r.testAudit)
	t.Run("replay", r.testReplay)
	t.Run("rebuild", r.testRebuild)
	t.Run("topics", r.testTopics)
	t.Run("wrong use", r.testWrongUse)
	t.Run("out of reach", r.testOutOfReach)
	t.Run("verify", r.testVerify)
}

func (r *rig) testLink(t *testing.T) {
	r.cli(exitFailed, "you have no link yet", "link", "get", "abc")
	made := r.link("link", "create", "https://example.com/one", "--code", "first", "--title", "One", "--tag", "a", "--tag", "b,c", "--expires-at", "2100-01-01T00:00:00Z",
		"--not-before", "2020-01-01T01:00:00+01:00", "--redirect-status", "307", "--query", "drop", "--cache-ttl", "60")
	if made.Code != "first" || made.Domain != r.domain || made.Title != "One" || fmt.Sprint(made.Tags) != "[a b,c]" || made.RedirectStatus != 307 || made.Query != "drop" || made.CacheTtl != 60 ||
		made.ExpiresAt.Year() != 2100 || made.NotBefore.Format(time.RFC3339) != "2020-01-01T00:00:00Z" {
		t.Fatalf("%+v", made)
	}
	once := r.link("link", "create", "https://example.com/two", "--idempotency-key", "k", "--code-length", "9")
	if again := r.link("link", "create", "--idempotency-key", "k", "https://example.com/two", "--code-length", "9"); again.Code != once.Code || len(once.Code) != 9 {
		t.Errorf("%+v, then %+v", once, again)
	}
	r.cli(exitFailed, "code_taken", "link", "create", "https://example.com/three", "--code", "first")
	r.cli(exitFailed, "invalid_target: target", "link", "create", "nonsense")
	for _, name := range []string{"first", r.domain + "/first", "http://" + r.domain + "/first/?q=1", strings.Replace(r.domain, "localhost", "127.0.0.1", 1) + "/first"} {
		if got := r.link("link", "get", name); got.Target != made.Target || got.Version != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	changed := r.link("link", "update", "first", "--target", "https://example.com/new", "--expires-at", "", "--tag", "", "--title=", "--redirect-status", "0", "--if-match", `"1"`, "--reason", "moved")
	if changed.Version != 2 || changed.Target != "https://example.com/new" || changed.ExpiresAt != nil || len(changed.Tags) != 0 || changed.Title != "" || changed.RedirectStatus != 302 || changed.Query != "drop" {
		t.Errorf("%+v", changed)
	}
	r.cli(exitFailed, "version_mismatch", "link", "update", "first", "--if-match", "1", "--title", "late")
	for i, verb := range []string{"disable", "enable", "ban", "unban"} {
		status := []string{"disabled", "active", "banned", "active"}[i]
		if got := r.link("link", verb, "--reason", "check", "first"); string(got.Status) != status || got.Version != uint64(3+i) {
			t.Errorf("%s: %+v", verb, got)
		}
	}
	r.cli(exitFailed, "not_found", "link", "get", "nothing")
	if table := r.cli(exitOK, "", "link", "get", "first"); !strings.Contains(table, "  https://example.com/new\nstatus ") {
		t.Errorf("%s", table)
	}
	if table := r.cli(exitOK, "", "link", "history", "first"); !strings.Contains(table, `target: "https://example.com/one" → "https://example.com/new"`) || !strings.Contains(table, "reason: check") {
		t.Errorf("%s", table)
	}
}

func (r *rig) testList(t *testing.T) {
	for i := range 5 {
		r.link("link", "create", "https://example.com/listed", "--code", fmt.Sprintf("listed%d", i), "--tag", "many")
	}
	page := decoded[gateway.LinkPage](t, r.cli(exitOK, "", "link", "list", "--tag", "many", "--limit", "2", "--json"))
	if len(page.Links) != 2 || page.Links[0].Code != "listed4" || page.NextCursor == nil {
		t.Fatalf("%+v", page)
	}
	rest := decoded[gateway.LinkPage](t, r.cli(exitOK, "", "link", "list", "--tag", "many", "--limit", "0", "--json", "--cursor", *page.NextCursor))
	if len(rest.Links) != 3 || rest.Links[2].Code != "listed0" || rest.NextCursor != nil {
		t.Errorf("%+v", rest)
	}
	if table := r.cli(exitOK, "", "link", "list", "--limit", "1"); strings.Count(table, "\n") != 3 || !strings.Contains(table, "there are more: --cursor ") {
		t.Errorf("%s", table)
	}
}

func (r *rig) testAudit(t *testing.T) {
	api := decoded[gateway.History](t, r.cli(exitOK, "", "link", "history", "first", "--json"))
	log := decoded[gateway.History](t, r.cli(exitOK, "", "audit", r.domain+"/first", "--json"))
	if fmt.Sprint(api) != fmt.Sprint(log) || len(log.Events) != 6 || log.Events[1].Reason != "moved" {
		t.Errorf("the API says\n%+v\nthe log\n%+v", api, log)
	}
	if table := r.cli(exitOK, "", "audit", "first"); !strings.Contains(table, "link.banned") {
		t.Errorf("%s", table)
	}
	r.cli(exitFailed, "the log has no link "+r.domain+"/nothing", "audit", "nothing")
	r.cli(exitFailed, "the log knows no short domain", "audit", "other.example/first")
}

func (r *rig) testReplay(t *testing.T) {
	history := decoded[gateway.History](t, r.cli(exitOK, "", "audit", "first", "--json"))
	for i, status := range []string{"active", "active", "disabled", "active", "banned", "active"} {
		for _, at := range []string{history.Events[i].Time.Format(time.RFC3339Nano), history.Events[i].Position} {
			if link := r.link("replay", "--as-of", at, "first"); link.Version != uint64(i+1) || string(link.Status) != status {
				t.Errorf("as of %s: %+v", at, link)
			}
		}
	}
	created := history.Events[0].Time
	if link := r.link("replay", "first", "--as-of", created.Format(time.RFC3339Nano)); link.Target != "https://example.com/one" || link.ExpiresAt.Year() != 2100 {
		t.Errorf("%+v", link)
	}
	if link := r.link("replay", "first", "--as-of", "2100-01-01T00:00:00Z"); link.Version != 6 {
		t.Errorf("%+v", link)
	}
	before := created.Add(-time.Microsecond).Format(time.RFC3339Nano)
	r.cli(exitFailed, "did not exist at "+before+": it was created at ", "replay", "--as-of", before, "first")
	r.cli(exitFailed, "the log has no link", "replay", "--as-of", before, "nothing")
	bucket := events.BucketOf(r.domain, "first")
	r.cli(exitFailed, "the log has no position", "replay", "--as-of", fmt.Sprintf("link/%d/9999", bucket), "first")
	r.cli(exitUsage, "says nothing of another bucket", "replay", "--as-of", fmt.Sprintf("link/%d/1", (bucket+1)%events.Buckets), "first")

	if out := r.cli(exitOK, "", "replay", "--as-of", before, "--json"); out != "" {
		t.Errorf("%s", out)
	}
	all := strings.Split(strings.TrimSpace(r.cli(exitOK, "", "replay", "--as-of", time.Now().Format(time.RFC3339Nano), "--json")), "\n")
	if len(all) != 7 {
		t.Errorf("%d links: %s", len(all), all)
	}
	decoded[gateway.Link](t, all[0])
	if counts := r.cli(exitOK, "", "replay", "--as-of", history.Events[4].Time.Format(time.RFC3339Nano)); !strings.Contains(counts, "banned") || !strings.Contains(counts, "  2\n") {
		t.Errorf("%s", counts)
	}
	if one := r.link("replay", "--as-of", history.Events[2].Position); one.Code != "first" || one.Version != 3 {
		t.Errorf("%+v", one)
	}
}

func (r *rig) testRebuild(t *testing.T) {
	report := decoded[rebuildReport](t, r.cli(exitOK, "", "replay", "--rebuild", "redirects", "--json"))
	if report.Records == 0 || report.Buckets != 7 || len(report.Differing) != 0 || len(report.Positions) != 4 {
		t.Errorf("%+v", report)
	}
	if said := r.cli(exitOK, "", "replay", "--rebuild", "redirects"); !strings.Contains(said, "7 buckets compared, 0 differed") {
		t.Errorf("%s", said)
	}
}

func (r *rig) testTopics(t *testing.T) {
	list := decoded[[]topicInfo](t, r.cli(exitOK, "", "topics", "--json"))
	if len(list) != len(eventlog.TopicNames()) || list[2].Topic != eventlog.EventsLink || list[2].Partitions != 4 || list[2].Records == 0 || list[2].Settings["retention.ms"] != "-1" {
		t.Errorf("%+v", list)
	}
	if table := r.cli(exitOK, "", "topics"); strings.Count(table, "\n") != len(list)+1 {
		t.Errorf("%s", table)
	}
}

func (r *rig) testWrongUse(*testing.T) {
	for _, args := range [][]string{
		{"link", "foo"}, {"link", "get"}, {"link", "get", "a", "b"}, {"link", "get", "a/b/c"}, {"link", "get", "--nonsense", "a"}, {"link", "create"},
		{"link", "update", "first"}, {"link", "update", "first", "--expires-at", "tomorrow"}, {"link", "update", "first", "--if-match", "x", "--title", "y"}, {"link", "update", "first", "--cache-ttl", "x"},
		{"link", "list", "--limit", "-1"}, {"link", "list", "--server", "127.0.0.1:1"}, {"link", "list", "--server", "ftp://127.0.0.1"}, {"link", "list", "--key", ""},
		{"audit"}, {"audit", "a", "b"}, {"audit", "verify", "x"}, {"replay"}, {"replay", "first"}, {"replay", "--as-of", "now"}, {"replay", "--rebuild", "links"},
		{"replay", "--rebuild", "redirects", "first"}, {"replay", "--as-of", "2020-01-01T00:00:00Z", "--rebuild", "redirects"}, {"replay", "--as-of", "control/0/1"},
		{"topics", "x"}, {"reconcile", "--from", "x"}, {"reconcile", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:00:59Z"}, {"reconcile", "x"}, {"reconcile", "--sign"},
		{"topics", "--kafka-sasl-mechanism", "X"},
	} {
		r.cli(exitUsage, "\nsee: hoplog ", args...)
	}
}

func (r *rig) testOutOfReach(t *testing.T) {
	r.cli(exitFailed, "no API answers at http://127.0.0.1:1: is `hoplog dev` running?", "link", "list", "--server", "http://127.0.0.1:1")
	r.cli(exitFailed, "--idempotency-key k2", "link", "create", "https://example.com/", "--server", "http://127.0.0.1:1", "--idempotency-key", "k2")
	r.cli(exitFailed, "unauthorized: ", "link", "list", "--key", "wrong")
	r.cli(exitFailed, "no Kafka broker answers at 127.0.0.1:1: is `hoplog dev` running?", "topics", "--kafka", "127.0.0.1:1")
	r.cli(exitFailed, "no process answers at the admin address", "replay", "--rebuild", "redirects", "--admin", "127.0.0.1:1")
	r.cli(exitFailed, "ClickHouse at", "reconcile") // the rig has none
	broker, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	r.cli(exitFailed, "has no Hoplog topics", "audit", "verify", "--kafka", broker.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, []string{"audit", "verify"}, io.Discard, io.Discard); code != exitFailed {
		t.Errorf("interrupted: exit code %d", code)
	}
}

// testVerify checks the log as it is, and a copy of it in which one record of the links' events is missing.
func (r *rig) testVerify(t *testing.T) {
	v := decoded[projections.Verification](t, r.cli(exitOK, "", "audit", "verify", "--json"))
	if v.Envelopes == 0 || v.Links != 7 || len(v.Problems) != 0 {
		t.Fatalf("%+v", v)
	}
	if table := r.cli(exitOK, "", "audit", "verify"); !strings.Contains(table, "problems   0\n") {
		t.Errorf("%s", table)
	}
	bucket := events.BucketOf(r.domain, "first")
	damaged := copyLog(t, r.kafka, func(topic string, partition int32, records []eventlog.Record) []eventlog.Record {
		for i, rec := range records {
			if e, err := events.DecodeEnvelope(rec.Value); topic == eventlog.EventsLink && err == nil && e.GetBucket() == bucket && e.GetSeq() == 2 {
				return append(records[:i:i], records[i+1:]...)
			}
		}
		return records
	})
	found := decoded[projections.Verification](t, r.cli(exitFailed, "", "audit", "verify", "--json", "--kafka", damaged))
	kinds := map[string]bool{}
	for _, p := range found.Problems {
		kinds[p.Kind] = true
	}
	if found.Envelopes != v.Envelopes-1 || !kinds[projections.ProblemChain] || !kinds[projections.ProblemWatermark] {
		t.Errorf("%+v", found)
	}
	if said := r.cli(exitFailed, "", "audit", "verify", "--kafka", damaged); !strings.Contains(said, fmt.Sprintf("bucket %d seq 3: it follows envelope 2", bucket)) {
		t.Errorf("%s", said)
	}
	r.cli(exitFailed, "`hoplog audit verify` shows", "audit", "first", "--kafka", damaged)
}

// copyLog copies a log to a broker of its own, changed by change, and returns the broker's address.
func copyLog(t *testing.T, from string, change func(topic string, partition int32, records []eventlog.Record) []eventlog.Record) string {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	broker, err := eventlog.StartEmbedded(eventlog.EmbeddedConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	src, errSrc := eventlog.Open(eventlog.Config{Brokers: []string{from}}, quiet)
	dst, errDst := eventlog.Open(eventlog.Config{Brokers: []string{broker.Addr()}}, quiet)
	if err := errors.Join(errSrc, errDst); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(src.Close)
	t.Cleanup(dst.Close)
	if err := dst.EnsureTopics(t.Context(), eventlog.TopicPlan{Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	reader := &logReader{Log: src}
	for _, topic := range []string{eventlog.CommandsLink, eventlog.CommandsControl, eventlog.EventsLink, eventlog.EventsControl} {
		ends, err := src.Ends(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for p, end := range ends {
			var records []eventlog.Record
			err := reader.records(t.Context(), topic, int32(p), 0, end, func(rec *eventlog.Record) error { records = append(records, *rec); return nil })
			if err != nil {
				t.Fatal(err)
			}
			if records = change(topic, int32(p), records); len(records) == 0 {
				continue
			}
			appender, err := dst.NewAppender(topic)
			if err == nil {
				err = appender.Append(t.Context(), int32(p), records, 0)
				appender.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return broker.Addr()
}
