package systemtest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/segments/segmentstest"
)

// damageSource is a data directory after a clean stop, with what must be true of it.
type damageSource struct {
	data  string
	ports map[string]string
	links []damageLink
}

// damageLink is a link with some versions.
type damageLink struct {
	code, target string
	version      int
}

// damageLinks and damageVersions are how many links the directory has, each with so many versions.
const (
	damageLinks    = 6
	damageVersions = 4
	damageVisits   = 12
)

// source makes the directory once: one partition, so that every record has neighbours.
var damaged struct {
	once   sync.Once
	source *damageSource
	err    error
}

func damagedSource(t *testing.T) *damageSource {
	t.Helper()
	damaged.once.Do(func() { damaged.source, damaged.err = makeDamageSource(t) })
	if damaged.err != nil {
		t.Fatal(damaged.err)
	}
	return damaged.source
}

func makeDamageSource(t *testing.T) (*damageSource, error) {
	dir, err := os.MkdirTemp("", "hoplog-damage-*")
	if err != nil {
		return nil, err
	}
	p := newProcess(t, []string{"dev", "--partitions", "1"}, "api", "redirect", "admin", "kafka", "clickhouse")
	p.data = dir
	p.start()
	s := &damageSource{data: dir, ports: p.ports}
	for i := range damageLinks {
		l := damageLink{code: p.made(fields{"target": fmt.Sprintf("https://example.com/%d/0", i)}), version: damageVersions}
		for v := 1; v < damageVersions; v++ {
			l.target = fmt.Sprintf("https://example.com/%d/%d", i, v)
			if a := p.api("PATCH", p.link(l.code), fields{"target": l.target}); a.status != http.StatusOK {
				return nil, fmt.Errorf("update: %d %s", a.status, a.raw)
			}
		}
		p.eventually("the last version is served", func() bool { return p.visitAs("HEAD", "/"+l.code).header.Get("Location") == l.target })
		s.links = append(s.links, l)
	}
	for i := range damageVisits {
		p.visit("/" + s.links[i%damageLinks].code)
		time.Sleep(120 * time.Millisecond) // a block of its own
	}
	if p.hasEngine() {
		p.eventually("the clicks are counted", func() bool {
			var r struct {
				Raw float64 `json:"raw_clicks"`
			}
			return p.cliJSON(&r, "reconcile") == 0 && r.Raw == damageVisits
		})
	}
	time.Sleep(1200 * time.Millisecond) // what was acknowledged is recorded every second
	if code, _ := p.stop(); code != 0 {
		return nil, fmt.Errorf("exit %d\n%s", code, p.out.tail())
	}
	return s, nil
}

// hasEngine reports whether clicks are counted on this machine.
func (p *process) hasEngine() bool {
	return !strings.Contains(p.out.String(), "click statistics are off")
}

// copy prepares a process on a copy of the directory, to be damaged before it starts.
func (s *damageSource) copy(t *testing.T) *process {
	t.Helper()
	p := newProcess(t, []string{"dev", "--partitions", "1"}, "api", "admin", "kafka", "clickhouse")
	p.ports["redirect"] = s.ports["redirect"] // the domain has its port
	if err := os.CopyFS(p.data, os.DirFS(s.data)); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) kafkaDir() string { return filepath.Join(p.data, "kafka") }

// forgetStores removes every store that is made from the log.
func (p *process) forgetStores() {
	p.t.Helper()
	for _, store := range []string{"commands", "redirects", "links"} {
		if err := os.RemoveAll(filepath.Join(p.data, store)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// refuses starts the process and expects that it ends with exit code 1 and these words, before it listens.
func (p *process) refuses(words ...string) {
	p.t.Helper()
	p.launch()
	select {
	case err := <-p.ended:
		p.ended <- err
		if exitCode(err) != 1 {
			p.t.Errorf("exit %d", exitCode(err))
		}
	case <-time.After(patient):
		p.t.Fatalf("the start was not refused\n%s", p.out.tail())
	}
	for _, w := range words {
		if !strings.Contains(p.out.String(), w) {
			p.t.Errorf("the start does not say %q: %s", w, p.out.tail())
		}
	}
}

// truthful looks at every link by redirect and API: an answer is right, or it is 503, or there is none. It returns how many
// of either were served.
func (p *process) truthful(links []damageLink) (redirects, records int) {
	p.t.Helper()
	for _, l := range links {
		if a, err := p.tryVisit("HEAD", "/"+l.code); err == nil {
			switch {
			case a.status == http.StatusFound && a.header.Get("Location") == l.target:
				redirects++
			case a.status != http.StatusServiceUnavailable:
				p.t.Errorf("redirect of %s: %d %s, want %s", l.code, a.status, a.header.Get("Location"), l.target)
			}
		}
		if a, err := p.tryAPI("GET", p.link(l.code), nil); err == nil {
			version, _ := a.body["version"].(float64)
			switch {
			case a.status == http.StatusOK && a.str("target") == l.target && int(version) == l.version:
				records++
			case a.status != http.StatusServiceUnavailable || a.str("code") != "unavailable":
				p.t.Errorf("link %s: %d %s, want version %d with %s", l.code, a.status, a.raw, l.version, l.target)
			}
		}
	}
	return redirects, records
}

// readyOrTold waits until the process is ready, or its roles have said why they are not.
func (p *process) readyOrTold() (status int, body string) {
	p.t.Helper()
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		status, body = p.get(p.ports["admin"], "/readyz")
		if status == http.StatusOK || strings.Contains(body, "partition 0") {
			return status, body
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			p.t.Fatalf("it ended: %v\n%s", err, p.out.tail())
		default:
		}
	}
	p.t.Fatalf("not settled: %d %s\n%s", status, body, p.out.tail())
	return 0, ""
}

var damageTopics = []string{eventlog.EventsLink, eventlog.CommandsLink, eventlog.EventsControl, eventlog.CommandsControl, eventlog.Clicks, eventlog.Sink}

// What a disk does to the log is found before anything is opened: the start is refused with the place, and no file is touched.
func TestDamagedFilesRefuseTheStart(t *testing.T) {
	s := damagedSource(t)
	for _, topic := range damageTopics {
		for _, c := range []struct {
			name   string
			damage func(t *testing.T, segment string)
			words  []string
		}{
			{"a byte in the middle", func(t *testing.T, segment string) { segmentstest.Flip(t, segment, 100) }, []string{"0.dat byte 0 offset 0", "checksum"}},
			{"a byte in the last record", func(t *testing.T, segment string) { segmentstest.Flip(t, segment, -2) }, []string{"checksum", "was acknowledged"}},
			{"the tail cut", func(t *testing.T, segment string) { segmentstest.Cut(t, segment, 30) }, []string{"was acknowledged"}},
			{"the file removed", func(t *testing.T, segment string) { _ = os.Remove(segment) }, []string{"was acknowledged"}},
		} {
			t.Run(topic+"/"+c.name, func(t *testing.T) {
				p := s.copy(t)
				partition := segmentstest.Partition(p.kafkaDir(), topic, 0)
				segments := segmentstest.Segments(t, partition)
				if len(segments) == 0 {
					t.Skipf("%s holds nothing here: the click sink did not run", topic)
				}
				c.damage(t, segments[0])
				p.refuses(append(c.words, topic+" partition 0", "nothing was changed")...)
				if redirects, records := p.truthful(s.links); redirects+records > 0 {
					t.Error("something was served")
				}
			})
		}
	}
}

// middle is where records are dropped, repeated and swapped: between two envelopes of one link's bucket.
func middle(records []segmentstest.Record) int {
	for i := len(records) / 2; i+1 < len(records); i++ {
		if bytes.Equal(records[i].Key, records[i+1].Key) {
			return i
		}
	}
	return len(records) / 2
}

var rewrites = map[string]func([]segmentstest.Record) []segmentstest.Record{
	"drop": func(r []segmentstest.Record) []segmentstest.Record {
		m := middle(r)
		return append(append([]segmentstest.Record{}, r[:m]...), r[m+1:]...)
	},
	"repeat": func(r []segmentstest.Record) []segmentstest.Record {
		m := middle(r)
		return append(append(append([]segmentstest.Record{}, r[:m+1]...), r[m]), r[m+1:]...)
	},
	"swap": func(r []segmentstest.Record) []segmentstest.Record {
		m := middle(r)
		r[m], r[m+1] = r[m+1], r[m]
		return r
	},
}

// A log that was rewritten with right checksums, its records dropped, repeated or swapped, and with nothing left that says
// how long it was, is found by the chain and by what its readers remember.
func TestRewrittenLogIsFound(t *testing.T) {
	s := damagedSource(t)
	for _, c := range []struct {
		topic, kind string
		fresh       bool     // the stores are gone, too: all is read from the beginning
		alarm       []string // words of /readyz; none: the process is ready
		audit       []string // words of a problem; none: no problem
	}{
		{eventlog.EventsLink, "drop", false, []string{"hoplog.events.link partition 0", "beyond the log's end"}, []string{"chain"}},
		{eventlog.EventsLink, "drop", true, []string{"hoplog.events.link partition 0", "nowhere in the log before it"}, []string{"chain"}},
		{eventlog.EventsLink, "repeat", false, nil, nil},
		{eventlog.EventsLink, "repeat", true, nil, nil},
		{eventlog.EventsLink, "swap", false, nil, []string{"chain"}},
		{eventlog.EventsLink, "swap", true, []string{"hoplog.events.link partition 0", "nowhere in the log before it"}, []string{"chain"}},
		{eventlog.CommandsLink, "drop", false, []string{"hoplog.commands.link partition 0", "beyond the log's end"}, []string{"command"}},
		{eventlog.CommandsLink, "drop", true, []string{"hoplog.commands.link partition 0", "beyond the log's end"}, []string{"command"}},
		{eventlog.CommandsLink, "repeat", false, []string{"hoplog.commands.link partition 0"}, []string{"command"}},
		{eventlog.CommandsLink, "swap", false, nil, []string{"command"}},
		{eventlog.EventsControl, "drop", false, []string{"hoplog.events.control partition 0", "nowhere in the log before it"}, []string{"chain"}},
		{eventlog.EventsControl, "repeat", false, nil, nil},
		{eventlog.EventsControl, "swap", false, []string{"hoplog.events.control partition 0", "nowhere in the log before it"}, []string{"chain"}},
		{eventlog.CommandsControl, "drop", false, []string{"hoplog.commands.control partition 0"}, []string{"command"}}, // a new one may take the place of the last
		{eventlog.CommandsControl, "repeat", false, []string{"hoplog.commands.control partition 0"}, []string{"command"}},
		{eventlog.CommandsControl, "swap", false, nil, []string{"command"}},
		{eventlog.Clicks, "drop", false, []string{"hoplog.clicks partition 0", "beyond the log's end"}, nil},
		// The sink sees it only if the blocks belong to the range that it settles again; reconcile sees it always.
		{eventlog.Clicks, "swap", false, nil, nil},
		{eventlog.Sink, "drop", false, []string{"hoplog.sink partition 0"}, nil},
	} {
		name := c.topic + "/" + c.kind
		if c.fresh {
			name += "/from the beginning"
		}
		t.Run(name, func(t *testing.T) {
			p := s.copy(t)
			partition := segmentstest.Partition(p.kafkaDir(), c.topic, 0)
			if len(segmentstest.Segments(t, partition)) == 0 {
				t.Skipf("%s holds nothing here: the click sink did not run", c.topic)
			}
			segmentstest.Rewrite(t, partition, rewrites[c.kind])
			segmentstest.Forget(t, p.kafkaDir())
			if c.fresh {
				p.forgetStores()
			}
			p.launch()
			_, body := p.readyOrTold()
			if c.alarm == nil && c.topic != eventlog.Clicks && strings.Contains(body, "partition 0") {
				t.Errorf("it says %s", body)
			}
			for _, words := range c.alarm {
				p.eventually(fmt.Sprintf("/readyz says %q", words), func() bool {
					_, body = p.get(p.ports["admin"], "/readyz")
					return strings.Contains(body, words)
				})
			}
			p.truthful(s.links)
			if c.topic == eventlog.Clicks && c.kind == "swap" {
				var r struct{ Differences []any }
				if code := p.cliJSON(&r, "reconcile"); code != 1 || len(r.Differences) == 0 {
					t.Errorf("reconcile: exit %d, %v", code, r)
				}
			}
			if void := p.audits(c.audit); c.kind == "repeat" && strings.HasPrefix(c.topic, "hoplog.events") && void != 1 {
				t.Errorf("audit verify counts %d void envelopes, want the repeated one", void)
			}
		})
	}
}

// audits expects that audit verify lists problems of these kinds with exit 1, or none. It returns how many envelopes are void.
func (p *process) audits(kinds []string) (void uint64) {
	p.t.Helper()
	var v struct {
		Envelopes, Void uint64
		Problems        []auditProblem
	}
	code := p.cliJSON(&v, "audit", "verify")
	if want := min(1, len(kinds)); code != want || (len(v.Problems) > 0) != (want == 1) {
		p.t.Errorf("audit verify: exit %d, want %d; %v", code, want, v.Problems)
	}
	for _, kind := range kinds {
		if !slices.ContainsFunc(v.Problems, func(p auditProblem) bool { return p.Kind == kind }) {
			p.t.Errorf("audit verify lists no problem of kind %q: %v", kind, v.Problems)
		}
	}
	return v.Void
}

type auditProblem struct{ Kind, Topic, Detail string }

// What the README says to do when there is no backup: cut the damaged file where the start said, forget what was
// acknowledged, and have the stores made again from what is left. The commands of the last week are decided again.
func TestDamagedLogIsCutByHand(t *testing.T) {
	s := damagedSource(t)
	p := s.copy(t)
	partition := segmentstest.Partition(p.kafkaDir(), eventlog.EventsLink, 0)
	segment := segmentstest.Segments(t, partition)[0]
	info, err := os.Stat(segment)
	if err != nil {
		t.Fatal(err)
	}
	segmentstest.Flip(t, segment, info.Size()/2)
	p.refuses("0.dat byte ")
	_, rest, _ := strings.Cut(p.out.String(), segment+" byte ")
	at, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil || at <= 0 || at > info.Size()/2 {
		t.Fatalf("the start names byte %d (%v)", at, err)
	}
	if err := os.Truncate(segment, at); err != nil {
		t.Fatal(err)
	}
	segmentstest.Forget(t, p.kafkaDir())
	p.forgetStores()
	p.start()
	p.audits(nil)
	whole := 0
	for _, l := range s.links {
		if a := p.api("GET", p.link(l.code), nil); a.status == http.StatusOK && a.str("target") == l.target {
			whole++
		}
	}
	if whole == 0 || whole == len(s.links) {
		t.Errorf("%d of %d links are whole: nothing was cut, or nothing is left", whole, len(s.links))
	}
	if a := p.create(fields{"target": "https://example.com/after"}); a.status != http.StatusCreated {
		t.Errorf("a create: %d %s", a.status, a.raw)
	}
}
