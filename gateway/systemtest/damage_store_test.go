package systemtest

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events/eventlog/segments/segmentstest"
)

// storeFiles finds the files of a store with a suffix or prefix, largest last.
func storeFiles(t *testing.T, dir, pattern string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if match, _ := filepath.Match(pattern, d.Name()); match {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	size := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	slices.SortFunc(paths, func(a, b string) int { return int(size(a) - size(b)) })
	return paths
}

// A store that is damaged before the start is said to be, kept, and made again from the log, or it shows an earlier state that
// the log brings up to date. Nothing wrong is served at any time.
func TestDamagedStoresAreMadeAgain(t *testing.T) {
	s := damagedSource(t)
	for _, store := range []string{"redirects", "links", "commands"} {
		for _, c := range []struct {
			name   string
			damage func(t *testing.T, dir string) (said string)
		}{
			{"all tables and logs", func(t *testing.T, dir string) string {
				for _, path := range append(storeFiles(t, dir, "*.sst"), storeFiles(t, dir, "*.log")...) {
					if info, err := os.Stat(path); err == nil && info.Size() > 60 {
						for at := int64(20); at < info.Size(); at += 40 {
							segmentstest.Flip(t, path, at)
						}
					}
				}
				return ""
			}},
			{"the list of tables", func(t *testing.T, dir string) string {
				files := storeFiles(t, dir, "MANIFEST-*")
				segmentstest.Flip(t, files[len(files)-1], -10)
				return "set aside"
			}},
			{"the list of tables is gone", func(t *testing.T, dir string) string {
				for _, path := range append(storeFiles(t, dir, "MANIFEST-*"), storeFiles(t, dir, "marker.manifest*")...) {
					_ = os.Remove(path)
				}
				return "set aside"
			}},
			{"tables are gone", func(t *testing.T, dir string) string {
				tables := storeFiles(t, dir, "*.sst")
				for _, path := range tables {
					_ = os.Remove(path)
				}
				if len(tables) == 0 {
					return ""
				}
				return "set aside"
			}},
		} {
			if store == "links" && c.name != "the list of tables" {
				continue // opened by the same code as the others
			}
			t.Run(store+"/"+c.name, func(t *testing.T) {
				p := s.copy(t)
				said := c.damage(t, filepath.Join(p.data, store))
				p.launch()
				p.eventually("it listens", func() bool { status, _ := p.get(p.ports["admin"], "/healthz"); return status == http.StatusOK })
				p.truthful(s.links) // while it is still reading
				p.ready()
				p.eventually("all links are served", func() bool {
					redirects, records := p.truthful(s.links)
					return redirects == len(s.links) && records == len(s.links)
				})
				if !strings.Contains(p.out.String(), said) {
					t.Errorf("the start does not say %q: %s", said, p.out.tail())
				}
				if said != "" {
					if kept, _ := filepath.Glob(filepath.Join(p.data, store+"*", "*damaged-*")); len(kept) == 0 {
						if kept, _ = filepath.Glob(filepath.Join(p.data, store+".damaged-*")); len(kept) == 0 {
							t.Error("no copy is kept")
						}
					}
				}
				if a := p.create(fields{"target": "https://example.com/after"}); a.status != http.StatusCreated {
					t.Errorf("a create afterwards: %d %s", a.status, a.raw)
				}
				p.audits(nil)
			})
		}
	}
}

// Damage that is met while a process runs is reported by /readyz with the store, and answered with 503. The process lives,
// and the next start makes the store again.
func TestDamageAtRunTimeIsReported(t *testing.T) {
	s := damagedSource(t)
	for _, c := range []struct{ store, role, state string }{{"links", "api", "not_ready"}, {"redirects", "redirect", "degraded"}} {
		t.Run(c.store, func(t *testing.T) {
			p := s.copy(t)
			dir := filepath.Join(p.data, c.store)
			p.start() // the logs become tables
			if code, _ := p.stop(); code != 0 {
				t.Fatal("exit", code)
			}
			tables := storeFiles(t, dir, "*.sst")
			if len(tables) == 0 {
				t.Skip("this store keeps all in its log")
			}
			for _, path := range tables {
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				for at := int64(0); at < info.Size()/3; at += 25 {
					segmentstest.Flip(t, path, at)
				}
			}
			p.launch()
			p.eventually("it says which store is damaged", func() bool {
				p.truthful(s.links)
				_, body := p.get(p.ports["admin"], "/readyz")
				return strings.Contains(body, `"`+c.role+`":{"state":"`+c.state+`"`) && strings.Contains(body, "damaged") && strings.Contains(body, dir) ||
					strings.Contains(p.out.String(), "set aside")
			})
			p.kill()
			p.start()
			p.eventually("all links are served", func() bool {
				redirects, records := p.truthful(s.links)
				return redirects == len(s.links) && records == len(s.links)
			})
		})
	}
}

// A store of redirects that is damaged while it is served is made again beside and switched, without a restart. Meanwhile each
// link is right, or 503.
func TestRedirectsAreMadeAgainWhileServed(t *testing.T) {
	p := dev(t, "--partitions", "1")
	rows := make([]fields, 500)
	for i := range rows {
		target := "https://example.com/" // long, and of no pattern, so that links are most of the store
		for range 10 {
			target += rand.Text()
		}
		rows[i] = fields{"target": target, "code": fmt.Sprintf("made-%03d", i)}
	}
	if a := p.api("POST", "/v1/links:batch", fields{"links": rows}); a.status != http.StatusOK {
		t.Fatalf("%d %.300s", a.status, a.raw)
	}
	p.eventually("the last is served", func() bool { return p.visitAs("HEAD", "/made-499").status == http.StatusFound })
	stop := func() {
		if code, _ := p.stop(); code != 0 {
			t.Fatal("exit", code)
		}
	}
	stop()
	p.start() // the store's log becomes a table
	stop()
	dir := filepath.Join(p.data, "redirects")
	for _, path := range storeFiles(t, dir, "*.sst") {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := info.Size() * 6 / 10; at < info.Size()*9/10; at += 50 { // of the links: positions before, the index after
			segmentstest.Flip(t, path, at)
		}
	}
	visit := func() (right, unavailable int) {
		for i := range rows {
			switch a := p.visitAs("HEAD", fmt.Sprintf("/made-%03d", i)); {
			case a.status == http.StatusFound && a.header.Get("Location") == rows[i]["target"]:
				right++
			case a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "":
				unavailable++
			default:
				t.Errorf("link %d: %d %s", i, a.status, a.header.Get("Location"))
			}
		}
		return right, unavailable
	}
	p.start()
	right, unavailable := visit()
	t.Logf("met at first: %d right, %d unavailable", right, unavailable)
	p.eventually("all links are served", func() bool { right, _ := visit(); return right == len(rows) })
	p.eventually("it says that the store is whole", func() bool {
		_, ready := p.get(p.ports["admin"], "/readyz")
		_, metrics := p.get(p.ports["admin"], "/metrics")
		return !strings.Contains(ready, "damaged") && strings.Contains(metrics, "hoplog_store_repairs_total 1") && strings.Contains(metrics, "hoplog_stores_damaged 0") &&
			strings.Contains(p.out.String(), "a store is damaged") && strings.Contains(p.out.String(), "made again from the log and switched")
	})
	time.Sleep(1500 * time.Millisecond) // one damage is told twice, and is one
	if _, metrics := p.get(p.ports["admin"], "/metrics"); !strings.Contains(metrics, "hoplog_store_repairs_total 1") {
		t.Error("the whole store is made again")
	}
	if kept, _ := filepath.Glob(filepath.Join(dir, "*.damaged-*")); len(kept) != 1 {
		t.Errorf("kept: %v", kept)
	}
}
