package systemtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// hostile is an instance that meets only hostile input, and what it acknowledged of it.
type hostile struct {
	*process
	acked map[string]bool // codes
}

// TestHostileInput sends what no friend sends. Each of it is refused with a stable code or taken for what it is; afterwards
// the log is whole, the process never saw an error of its own, and the links are those that were acknowledged.
func TestHostileInput(t *testing.T) {
	h := &hostile{process: dev(t), acked: map[string]bool{}}
	for _, part := range []struct {
		name string
		run  func(*hostile, *testing.T)
	}{
		{"InjectionByTarget", (*hostile).injectionByTarget},
		{"InjectionByCode", (*hostile).injectionByCode},
		{"InjectionByQuery", (*hostile).injectionByQuery},
		{"InjectionByHost", (*hostile).injectionByHost},
		{"InjectionIntoAPI", (*hostile).injectionIntoAPI},
		{"BrokenJSON", (*hostile).brokenJSON},
		{"WrongTypes", (*hostile).wrongTypes},
		{"WrongValues", (*hostile).wrongValues},
		{"WrongRows", (*hostile).wrongRows},
		{"TooLong", (*hostile).tooLong},
		{"TooLarge", (*hostile).tooLarge},
		{"LargeRequestLines", (*hostile).largeRequestLines},
		{"InvalidUTF8", (*hostile).invalidUTF8},
		{"InvalidUTF8InClicks", (*hostile).invalidUTF8InClicks},
		{"Methods", (*hostile).methods},
		{"Keys", (*hostile).keys},
		{"ListParameters", (*hostile).listParameters},
		{"StatsParameters", (*hostile).statsParameters},
		{"Positions", (*hostile).positions},
		{"IfMatch", (*hostile).ifMatch},
		{"Connections", (*hostile).connections},
	} {
		t.Run(part.name, func(t *testing.T) {
			p := *h.process
			p.t = t
			part.run(&hostile{&p, h.acked}, t)
		})
	}
	h.nothingHalfWritten(t)
}

// send is api, and notes what was acknowledged.
func (h *hostile) send(method, path string, body any, headers ...string) answer {
	h.t.Helper()
	a := h.api(method, path, body, headers...)
	h.note(a)
	return a
}

func (h *hostile) note(a answer) {
	if a.str("short_url") != "" {
		h.acked[a.str("code")] = true
	}
	rows, _ := a.body["results"].([]any)
	for _, row := range rows {
		if link, made := row.(fields)["link"].(fields); made {
			h.acked[link["code"].(string)] = true
		}
	}
}

// target makes a link that is to be there.
func (h *hostile) target(target string) (code string) {
	h.t.Helper()
	code = h.made(fields{"target": target})
	h.acked[code] = true
	return code
}

func (h *hostile) nothingHalfWritten(t *testing.T) {
	listed := map[string]bool{}
	for _, query := range []string{"limit=100", "limit=100&status=deleted"} {
		h.list(t, query, listed)
	}
	if !maps.Equal(listed, h.acked) {
		for code := range h.acked {
			if !listed[code] {
				t.Errorf("%q was acknowledged and is not there", code)
			}
		}
		for code := range listed {
			if !h.acked[code] {
				t.Errorf("%q is there and was not acknowledged", code)
			}
		}
	}
	var verify struct {
		Links    int
		Problems []any
	}
	if exit := h.cliJSON(&verify, "audit", "verify"); exit != 0 || len(verify.Problems) > 0 || verify.Links != len(h.acked) {
		t.Errorf("audit verify: exit %d, %d links of %d, %v", exit, verify.Links, len(h.acked), verify.Problems)
	}
	h.noErrorsOfItsOwn(t)
	t.Logf("%d links were acknowledged", len(listed))
}

// list adds the codes of all pages of a list.
func (h *hostile) list(t *testing.T, query string, codes map[string]bool) {
	for cursor := ""; ; {
		a := h.api("GET", "/v1/links?"+query+cursor, nil)
		var page struct {
			Links      []struct{ Code string }
			NextCursor *string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(a.raw), &page); err != nil || a.status != http.StatusOK {
			t.Fatalf("list: %d %s", a.status, a.raw)
		}
		for _, l := range page.Links {
			codes[l.Code] = true
		}
		if page.NextCursor == nil {
			return
		}
		cursor = "&cursor=" + url.QueryEscape(*page.NextCursor)
	}
}

// noErrorsOfItsOwn looks for what only a bug writes.
func (h *hostile) noErrorsOfItsOwn(t *testing.T) {
	for line := range strings.Lines(h.out.String()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
			t.Errorf("hoplog wrote: %.500s", line)
		}
	}
	if exit, _ := h.stop(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

// without returns all but some of a list.
func without(list []string, drop ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(drop, s) })
}

// quoted is text as JSON.
func quoted(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(fmt.Errorf("encoding a string: %w", err))
	}
	return string(raw)
}
