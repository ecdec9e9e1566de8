package systemtest

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// inputCase is one entry of testdata/cases. A field that a kind of case does not have is empty.
type inputCase struct {
	ID           string   `json:"id"`
	Target       string   `json:"target"`
	Policy       string   `json:"policy"`
	VisitorQuery string   `json:"visitor_query"`
	Location     string   `json:"location"`
	Code         string   `json:"code"`
	Path         string   `json:"path"`
	Paths        []string `json:"paths"`
	Status       int      `json:"status"`
	Error        string   `json:"error"`
}

// cases loads testdata/cases/NAME.json and, where the folder that it was copied from is there, its newer cases too: they
// replace those with the same id.
func cases(t *testing.T, name string) []inputCase {
	t.Helper()
	list, at := []inputCase{}, map[string]int{}
	for _, folder := range []string{filepath.Join("testdata", "cases"), filepath.Join("..", "..", "..", "shared", "cases")} {
		raw, err := os.ReadFile(filepath.Join(folder, name+".json"))
		if errors.Is(err, fs.ErrNotExist) && len(list) > 0 {
			continue
		}
		var found []inputCase
		if err == nil {
			err = json.Unmarshal(raw, &found)
		}
		if err != nil {
			t.Fatal(err)
		}
		added := 0
		for _, c := range found {
			i, known := at[c.ID]
			if !known {
				at[c.ID] = len(list)
				list, added = append(list, c), added+1
				continue
			}
			list[i] = c
		}
		t.Logf("%s: %d cases from %s, %d of them new", name, len(found), folder, added)
	}
	return list
}

// served visits a path until the redirects know its link.
func (p *process) served(path string) (a answer) {
	p.t.Helper()
	p.eventually("the redirects serve "+path, func() bool {
		a = p.visit(path)
		return a.status != http.StatusNotFound
	})
	return a
}

func TestTargetCases(t *testing.T) {
	p := shared(t)
	for _, c := range cases(t, "targets") {
		t.Run(c.ID, func(t *testing.T) {
			a := p.create(fields{"target": c.Target})
			if c.Error != "" {
				refusedWith(t, c.Target, a, c.Error)
				return
			}
			if a.status != http.StatusCreated {
				t.Fatalf("create: %d %s", a.status, a.raw)
			}
			if v := p.served("/" + a.str("code")); v.status != http.StatusFound || v.header.Get("Location") != c.Location {
				t.Errorf("%d %q, want 302 %q", v.status, v.header.Get("Location"), c.Location)
			}
		})
	}
}

func TestQueryCases(t *testing.T) {
	p := shared(t)
	for _, c := range cases(t, "query") {
		t.Run(c.ID, func(t *testing.T) {
			path := "/" + p.made(fields{"target": c.Target, "query": c.Policy})
			if c.VisitorQuery != "" {
				path += "?" + c.VisitorQuery
			}
			want := c.Status
			if want == 0 {
				want = http.StatusFound
			}
			if v := p.visit(path); v.status != want || v.header.Get("Location") != c.Location {
				t.Errorf("%s: %d %q, want %d %q", path, v.status, v.header.Get("Location"), want, c.Location)
			}
		})
	}
}

func TestCodeCases(t *testing.T) {
	p := shared(t)
	for _, c := range cases(t, "codes") {
		t.Run(c.ID, func(t *testing.T) {
			target := "https://example.com/" + c.ID
			a := p.create(fields{"target": target, "code": c.Code})
			if c.Error != "" {
				refusedWith(t, c.Code, a, c.Error)
				return
			}
			if a.status != http.StatusCreated || a.str("code") != c.Code {
				t.Errorf("create %+q: %d %s", c.Code, a.status, a.raw)
			}
			for _, path := range c.Paths {
				if v := p.served(path); v.status != c.Status || v.header.Get("Location") != target {
					t.Errorf("%s: %d %q", path, v.status, v.header.Get("Location"))
				}
			}
		})
	}
}

func TestPathCases(t *testing.T) {
	p := shared(t)
	for _, c := range cases(t, "paths") {
		t.Run(c.ID, func(t *testing.T) {
			a := rawVisit(t, p, "GET", c.Path, p.domain())
			if a.status != c.Status {
				t.Errorf("%s: %d, want %d", c.Path, a.status, c.Status)
			}
			onlyOurHeaders(t, c.Path, a)
		})
	}
}
