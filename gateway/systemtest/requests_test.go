package systemtest

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
)

// replayed checks the repeat of a write: the first answer again, marked.
func replayed(t *testing.T, what string, first, again answer) {
	t.Helper()
	switch {
	case again.header.Get("Idempotency-Replayed") != "true" || first.header.Get("Idempotency-Replayed") != "":
		t.Errorf("%s: the repeat says %v, the first said %v", what, again.header, first.header)
	case first.status >= 400 && (again.status != first.status || again.str("code") != first.str("code")):
		t.Errorf("%s: first %d %s, again %d %s", what, first.status, first.raw, again.status, again.raw)
	case first.status < 400 && (again.status != http.StatusOK || again.str("code") != first.str("code") || again.body["version"] != first.body["version"] || again.header.Get("ETag") != first.header.Get("ETag")):
		t.Errorf("%s: first %d %s, again %d %s", what, first.status, first.raw, again.status, again.raw)
	}
	if again.header.Get("Idempotency-Key") != first.header.Get("Idempotency-Key") {
		t.Errorf("%s: the key comes back as %q", what, again.header.Get("Idempotency-Key"))
	}
}

func TestRepeatedWrites(t *testing.T) {
	p := shared(t)
	created := p.create(fields{"target": "https://example.com/repeated"}, "Idempotency-Key", "repeated-create")
	if created.status != http.StatusCreated {
		t.Fatalf("%d %s", created.status, created.raw)
	}
	link := p.link(created.str("code"))
	writes := []struct{ method, path, body, other string }{
		{"POST", "/v1/links", `{"target":"https://example.com/repeated"}`, `{"target":"https://example.com/repeated","title":"x"}`},
		{"PATCH", link, `{"title":"new","tags":["a"]}`, `{"title":"other","tags":["a"]}`},
		{"POST", link + "/disable", `{"reason":"r"}`, `{"reason":"s"}`},
		{"POST", link + "/enable", `{"reason":"r"}`, `{}`},
		{"POST", link + "/ban", `{"reason":"r"}`, `{"reason":"r","legal":true}`},
		{"POST", link + "/unban", `{"reason":"r"}`, `{"reason":""}`},
		{"DELETE", link + "?reason=r", ``, ``},
	}
	firsts := make([]answer, len(writes))
	key := func(i int) string { return fmt.Sprint("repeated-", i) }
	for i, w := range writes {
		if firsts[i] = p.api(w.method, w.path, w.body, "Idempotency-Key", key(i)); i == 0 {
			continue
		}
		if want := float64(i + 1); firsts[i].status != http.StatusOK || firsts[i].body["version"] != want || firsts[i].header.Get("Hoplog-Position") == "" {
			t.Fatalf("%s %s: %d %s, want version %v", w.method, w.path, firsts[i].status, firsts[i].raw, want)
		}
	}
	for i, w := range writes { // in whatever state the link is by now
		what := w.method + " " + w.path
		replayed(t, what, firsts[i], p.api(w.method, w.path, w.body, "Idempotency-Key", key(i)))
		if w.method == "DELETE" {
			w.path, w.other = link+"?reason=s", ""
		}
		refusedWith(t, what+" with another body", p.api(w.method, w.path, w.other, "Idempotency-Key", key(i)), "idempotency_key_reused")
		next := writes[(i+1)%len(writes)]
		refusedWith(t, what+" and then "+next.method, p.api(next.method, next.path, next.body, "Idempotency-Key", key(i)), "idempotency_key_reused")
	}
	replayed(t, "the create", created, p.create(fields{"target": "https://example.com/repeated"}, "Idempotency-Key", "repeated-create"))
	history := p.api("GET", link+"/history", nil)
	if list, _ := history.body["events"].([]any); len(list) != len(writes) {
		t.Errorf("%d events, want %d: %s", len(list), len(writes), history.raw)
	}
}

// A refusal that was decided stands under its key, whatever happened since.
func TestRepeatedRefusal(t *testing.T) {
	p := shared(t)
	code := p.made(fields{"target": "https://example.com/refused"})
	stale := func() answer {
		return p.api("PATCH", p.link(code), `{"title":"x"}`, "If-Match", `"2"`, "Idempotency-Key", "refused-patch")
	}
	taken := func() answer {
		return p.create(fields{"target": "https://example.com/", "code": code}, "Idempotency-Key", "refused-create")
	}
	first := []answer{stale(), taken()}
	refusedWith(t, "stale", first[0], "version_mismatch")
	refusedWith(t, "taken", first[1], "code_taken")
	p.api("PATCH", p.link(code), `{"title":"y"}`) // now version 2 is there
	replayed(t, "stale", first[0], stale())
	replayed(t, "taken", first[1], taken())
}

// A key means one request, also when another request with it would lie elsewhere in the log.
func TestOneKeyElsewhere(t *testing.T) {
	p := shared(t)
	for i, body := range []fields{{"code": "elsewhere-a"}, {"code": "elsewhere-b"}, {"dedupe": true}, {}} {
		body["target"] = "https://example.com/elsewhere"
		a := p.create(body, "Idempotency-Key", "elsewhere")
		if i == 0 && a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.raw)
		} else if i > 0 {
			refusedWith(t, fmt.Sprint(body), a, "idempotency_key_reused")
		}
		row := fields{"links": []fields{body}}
		rows, _ := rowsOf(p.api("POST", "/v1/links:batch", row, "Idempotency-Key", "elsewhere-rows"))
		want := "422 idempotency_key_reused"
		if i == 0 {
			want = "409 code_taken" // an outcome too
		}
		if len(rows) != 1 || rows[0] != want {
			t.Errorf("row %v: %v, want %s", body, rows, want)
		}
	}
	body := fields{"target": "https://example.com/"}
	refusedWith(t, "a batch with a single write's key", p.api("POST", "/v1/links:batch", fields{"links": []fields{body}}, "Idempotency-Key", "elsewhere"), "idempotency_key_reused")
	refusedWith(t, "a single write with a batch's key", p.create(body, "Idempotency-Key", "elsewhere-rows"), "idempotency_key_reused")
	if a := p.create(fields{"target": "https://example.com/", "code": "elsewhere-b"}); a.status != http.StatusCreated {
		t.Errorf("the refused code: %d %s", a.status, a.raw)
	}
}

// Requests with one key that are under way together, at two servers, make one link.
func TestOneKeyAtOnce(t *testing.T) {
	p := shared(t)
	servers := []*process{p, p.serve(t, "api")}
	for round := range 10 {
		key := fmt.Sprint("one-key-", round)
		answers := together(8, func(i int) answer {
			return servers[i%2].create(fields{"target": "https://example.com/one-key"}, "Idempotency-Key", key)
		})
		if got := statuses(answers); got["201"] != 1 || got["200"] != 7 || len(codesOf(answers)) != 1 {
			t.Errorf("round %d: %v, codes %v", round, got, codesOf(answers))
		}
		marked := 0
		for _, a := range answers {
			if a.header.Get("Idempotency-Replayed") == "true" {
				marked++
			}
		}
		if marked != 7 {
			t.Errorf("round %d: %d answers say that they are repeats", round, marked)
		}
	}
}

// rowsOf returns a batch's rows as "status code replayed".
func rowsOf(a answer) (rows []string, codes []any) {
	results, _ := a.body["results"].([]any)
	for _, r := range results {
		row := r.(fields)
		text := fmt.Sprint(row["status"])
		if row["replayed"] == true {
			text += " replayed"
		}
		if problem, failed := row["error"].(fields); failed {
			text += fmt.Sprint(" ", problem["code"])
		}
		link, _ := row["link"].(fields)
		rows, codes = append(rows, text), append(codes, link["code"])
	}
	return rows, codes
}

func TestRepeatedBatch(t *testing.T) {
	p := shared(t)
	p.made(fields{"target": "https://example.com/", "code": "batch-taken"})
	batch := func(third string) answer {
		return p.api("POST", "/v1/links:batch", `{"links":[{"target":"https://example.com/batch/0"},{"target":"https://example.com/","code":"batch-taken"},{"target":"`+third+`"},{"target":"no"}]}`, "Idempotency-Key", "batch-1")
	}
	first, codes := rowsOf(batch("https://example.com/batch/2"))
	again, sameCodes := rowsOf(batch("https://example.com/batch/2"))
	other, _ := rowsOf(batch("https://example.com/batch/other"))
	for what, c := range map[string]struct {
		got  []string
		want string
	}{
		"first":     {first, "[201 409 code_taken 201 400 invalid_target]"},
		"again":     {again, "[200 replayed 409 replayed code_taken 200 replayed 400 invalid_target]"},
		"one other": {other, "[200 replayed 409 replayed code_taken 422 idempotency_key_reused 400 invalid_target]"},
	} {
		if fmt.Sprint(c.got) != c.want {
			t.Errorf("%s: %v, want %s", what, c.got, c.want)
		}
	}
	if fmt.Sprint(codes) != fmt.Sprint(sameCodes) {
		t.Errorf("codes %v, then %v", codes, sameCodes)
	}
	report := p.api("GET", "/v1/requests/batch-1", nil)
	rows, _ := report.body["rows"].([]any)
	var got []string
	for _, r := range rows {
		row := r.(fields)
		got = append(got, fmt.Sprint(row["row"], " ", row["state"], " ", row["status"]))
	}
	if want := "[0 succeeded 200 1 failed 409 2 succeeded 200]"; report.str("state") != "succeeded" || fmt.Sprint(got) != want {
		t.Errorf("rows %v, want %s: %s", got, want, report.raw)
	}
}

func TestRequestReports(t *testing.T) {
	p := shared(t)
	const key = "report/1?a=b&c#%25~"
	address := "/v1/requests/" + url.PathEscape(key)
	if a := p.api("GET", address, nil); a.status != http.StatusOK || a.str("state") != "unknown" || a.str("as_of") == "" || a.str("key") != key {
		t.Errorf("before: %d %s", a.status, a.raw)
	}
	made := p.create(fields{"target": "https://example.com/report"}, "Idempotency-Key", key)
	at := made.header.Get("Hoplog-Position")
	a := p.api("GET", address, nil, "Hoplog-Position", at)
	link, _ := a.body["link"].(fields)
	if a.str("state") != "succeeded" || link["code"] != made.str("code") || a.str("position") != at {
		t.Errorf("after: %d %s, was %s at %s", a.status, a.raw, made.raw, at)
	}
	refused := p.create(fields{"target": "https://example.com/", "code": made.str("code")}, "Idempotency-Key", "report-2")
	refusedWith(t, "taken", refused, "code_taken")
	a = p.api("GET", "/v1/requests/report-2", nil, "Hoplog-Position", refused.header.Get("Hoplog-Position"))
	if problem, _ := a.body["error"].(fields); a.str("state") != "failed" || problem["code"] != "code_taken" || a.body["status"] != float64(http.StatusConflict) {
		t.Errorf("failed: %d %s", a.status, a.raw)
	}
	// Syntax is no outcome: it says nothing about the key.
	p.create(fields{"target": "no"}, "Idempotency-Key", "report-3")
	if a := p.api("GET", "/v1/requests/report-3", nil); a.str("state") != "unknown" {
		t.Errorf("never sent: %d %s", a.status, a.raw)
	}
	own := p.create(fields{"target": "https://example.com/own"})
	a = p.api("GET", "/v1/requests/"+own.header.Get("Idempotency-Key"), nil)
	if link, _ := a.body["link"].(fields); a.str("state") != "succeeded" || link["code"] != own.str("code") {
		t.Errorf("the server's own key %q: %d %s", own.header.Get("Idempotency-Key"), a.status, a.raw)
	}
}

// Reads at one server see what was written at another, when they say how far that was.
func TestReadYourWrites(t *testing.T) {
	p := shared(t)
	other := p.serve(t, "api")
	for i := range 30 {
		tag := fmt.Sprint("ryw-", i)
		made := p.create(fields{"target": "https://example.com/ryw", "tags": []string{tag}})
		link := p.link(made.str("code"))
		list := other.api("GET", "/v1/links?tag="+tag, nil, "Hoplog-Position", made.header.Get("Hoplog-Position"))
		if links, _ := list.body["links"].([]any); len(links) != 1 {
			t.Errorf("list: %d %s", list.status, list.raw)
		}
		edited := p.api("PATCH", link, fields{"title": tag})
		at := edited.header.Get("Hoplog-Position")
		if a := other.api("GET", link, nil, "Hoplog-Position", at); a.str("title") != tag || a.header.Get("ETag") != `"2"` {
			t.Errorf("get at %s: %d %s", at, a.status, a.raw)
		}
		edited = other.api("PATCH", link, fields{"tags": []string{}}, "If-Match", `"2"`)
		a := p.api("GET", link+"/history", nil, "Hoplog-Position", edited.header.Get("Hoplog-Position"))
		if events, _ := a.body["events"].([]any); len(events) != 3 {
			t.Errorf("history: %d %s", a.status, a.raw)
		}
		list = p.api("GET", "/v1/links?tag="+tag, nil, "Hoplog-Position", edited.header.Get("Hoplog-Position"))
		if links, _ := list.body["links"].([]any); list.status != http.StatusOK || len(links) != 0 {
			t.Errorf("list without the tag: %d %s", list.status, list.raw)
		}
	}
}
