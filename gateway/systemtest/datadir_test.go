package systemtest

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// makeDataDirEnv names the archive that TestMakeDataDir writes: the data directory of the present binary, to be kept in
// testdata as datadir-vN.tar.gz whenever the form of what is stored has changed.
const makeDataDirEnv = "HOPLOG_MAKE_DATADIR"

// dataDirTruth is what an archive must show. It lies in the archive as truth.json.
type dataDirTruth struct {
	Domain string         `json:"domain"`
	Links  []dataDirLink  `json:"links"`
	Clicks float64        `json:"clicks"` // 0: nothing counts clicks where it was made
	Void   uint64         `json:"void"`
	Audit  map[string]any `json:"audit"`
}

type dataDirLink struct {
	Code     string         `json:"code"`
	Status   int            `json:"status"` // of a redirect
	Location string         `json:"location"`
	Link     map[string]any `json:"link"`
	History  map[string]any `json:"history"`
	Key      string         `json:"key"` // the request key of its create
}

// look asks the process for everything that the truth names.
func (p *process) look(domain string, codes, keys []string) (truth dataDirTruth) {
	p.t.Helper()
	truth.Domain = domain
	for i, code := range codes {
		l := dataDirLink{Code: code, Key: keys[i]}
		if a := p.visitAs("HEAD", "/"+code, "Host", domain); true {
			l.Status, l.Location = a.status, a.header.Get("Location")
		}
		path := "/v1/links/" + domain + "/" + code
		l.Link, l.History = p.api("GET", path, nil).body, p.api("GET", path+"/history", nil).body
		truth.Links = append(truth.Links, l)
	}
	if code := p.cliJSON(&truth.Audit, "audit", "verify"); code != 0 {
		p.t.Errorf("audit verify: exit %d %v", code, truth.Audit)
	}
	// What a process adds to its control log at every start is not part of the truth.
	delete(truth.Audit, "envelopes")
	return truth
}

// clicks counts what the store holds, and compares it with the log.
func (p *process) clicks() float64 {
	p.t.Helper()
	var r struct {
		Log float64 `json:"log_clicks"`
		Raw float64 `json:"raw_clicks"`
	}
	if code := p.cliJSON(&r, "reconcile"); code != 0 || r.Log != r.Raw {
		p.t.Errorf("reconcile: exit %d %+v", code, r)
	}
	return r.Raw
}

// TestMakeDataDir makes an archive of a data directory; only if it is asked for.
func TestMakeDataDir(t *testing.T) {
	archive := os.Getenv(makeDataDirEnv)
	if archive == "" {
		t.Skip("makes an archive only with " + makeDataDirEnv + "=FILE")
	}
	p := dev(t, "--partitions", "2")
	var codes, keys []string
	for i, f := range []fields{
		{"target": "https://example.com/plain"},
		{"target": "https://example.com/custom?a=%2f", "code": "Custom-1", "title": "a title", "tags": []string{"a", "b"}, "redirect_status": 301},
		{"target": "https://example.com/ends", "expires_at": "2099-01-02T03:04:05Z", "cache_ttl": 60},
		{"target": "https://example.com/banned"},
		{"target": "https://example.com/gone"},
		{"target": "https://example.com/deduped", "dedupe": true},
	} {
		key := fmt.Sprint("datadir-", i)
		a := p.create(f, "Idempotency-Key", key)
		if a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.raw)
		}
		codes, keys = append(codes, a.str("code")), append(keys, key)
	}
	for _, change := range []struct {
		method, path string
		body         any
	}{
		{"PATCH", p.link(codes[0]), fields{"target": "https://example.com/plain/2"}},
		{"POST", p.link(codes[3], "/ban"), fields{"reason": "legal: a court"}},
		{"DELETE", p.link(codes[4]), nil},
	} {
		if a := p.api(change.method, change.path, change.body); a.status >= 300 {
			t.Fatalf("%d %s", a.status, a.raw)
		}
	}
	p.eventually("the ban is served", func() bool { return p.visitAs("HEAD", "/"+codes[3]).status == http.StatusUnavailableForLegalReasons })
	for range 5 {
		p.visit("/" + codes[0])
	}
	truth := p.look(p.domain(), codes, keys)
	if p.hasEngine() {
		p.eventually("the clicks are counted", func() bool { truth.Clicks = p.clicks(); return truth.Clicks == 5 })
	}
	time.Sleep(1200 * time.Millisecond) // what was acknowledged is recorded every second
	if code, _ := p.stop(); code != 0 {
		t.Fatal("exit", code)
	}
	text, err := json.Marshal(truth)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.data, "truth.json"), text, 0o644)
	}
	if err == nil {
		err = pack(archive, p.data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Data directories of earlier binaries open with this one, and show what they showed.
func TestDataDirectoriesOfEarlierBinaries(t *testing.T) {
	archives, err := filepath.Glob("testdata/datadir-v*.tar.gz")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			p := newProcess(t, []string{"dev"}, "api", "redirect", "admin", "kafka", "clickhouse")
			if err := unpack(archive, p.data); err != nil {
				t.Fatal(err)
			}
			var want dataDirTruth
			text, err := os.ReadFile(filepath.Join(p.data, "truth.json"))
			if err == nil {
				err = json.Unmarshal(text, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, start := range []string{"the first start", "the second start"} { // what the first one wrote is read by the second
				p.start()
				p.showsAgain(t, start, want)
				if code, _ := p.stop(); code != 0 {
					t.Errorf("%s: exit %d", start, code)
				}
			}
			if _, err := os.Stat(filepath.Join(p.data, "owners")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the store of owners is still there: %v", err) // it was one of its own before there were links/2
			}
			if strings.Contains(p.out.String(), "level=WARN") && strings.Contains(p.out.String(), "damaged") {
				t.Errorf("it was taken for damaged: %s", p.out)
			}
		})
	}
}

// laterFields are fields of links that came after the first archive; of older links they say that there is nothing.
var laterFields = []string{"expired_url"}

func (p *process) showsAgain(t *testing.T, start string, want dataDirTruth) {
	t.Helper()
	var codes, keys []string
	for _, l := range want.Links {
		codes, keys = append(codes, l.Code), append(keys, l.Key) // keys are not tried again: they expire
	}
	got := p.look(want.Domain, codes, keys)
	for i, l := range want.Links {
		for _, later := range laterFields {
			if _, there := l.Link[later]; !there {
				l.Link[later] = nil
			}
		}
		if !reflect.DeepEqual(got.Links[i], l) {
			t.Errorf("%s: link %d is\n%v, was\n%v", start, i, got.Links[i], l)
		}
	}
	p.lists(start, want)
	if a := p.create(fields{"target": "https://example.com/new"}); a.status != http.StatusCreated {
		t.Errorf("%s: a create: %d %s", start, a.status, a.raw)
	}
	if fmt.Sprint(got.Audit["problems"], got.Audit["void"]) != fmt.Sprint(want.Audit["problems"], want.Audit["void"]) {
		t.Errorf("%s: audit verify says %v, said %v", start, got.Audit, want.Audit)
	}
	switch {
	case !p.hasEngine() || want.Clicks == 0:
		t.Log("clicks are not compared: no ClickHouse here, or where the archive was made")
	case p.clicks() != want.Clicks:
		t.Errorf("%s: %v clicks, want %v", start, p.clicks(), want.Clicks)
	}
}

// lists expects that the owner's lists have every link of the truth as it is, or as a tombstone.
func (p *process) lists(start string, want dataDirTruth) {
	p.t.Helper()
	listed := map[string]any{}
	for _, query := range []string{"?limit=1000", "?limit=1000&status=deleted"} {
		page, _ := p.api("GET", "/v1/links"+query, nil).body["links"].([]any)
		for _, link := range page {
			code, _ := link.(map[string]any)["code"].(string)
			listed[code] = link
		}
	}
	for _, l := range want.Links {
		if !reflect.DeepEqual(listed[l.Code], any(l.Link)) {
			p.t.Errorf("%s: listed is\n%v, was\n%v", start, listed[l.Code], l.Link)
		}
		tags, _ := l.Link["tags"].([]any)
		for _, tag := range tags {
			page, _ := p.api("GET", fmt.Sprintf("/v1/links?tag=%s", tag), nil).body["links"].([]any)
			if !slices.ContainsFunc(page, func(link any) bool { return reflect.DeepEqual(link, any(l.Link)) }) {
				p.t.Errorf("%s: %s is not listed under %s: %v", start, l.Code, tag, page)
			}
		}
	}
}

// pack writes a directory's files into a compressed archive.
func pack(archive, dir string) (err error) {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	compressed, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	out := tar.NewWriter(compressed)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := out.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = out.Write(content)
		return err
	})
	return errors.Join(err, out.Close(), compressed.Close())
}

func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	compressed, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for in := tar.NewReader(compressed); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		content, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
}
