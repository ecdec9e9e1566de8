package systemtest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// bodies are the writes that take a body, with one that is fine.
func (h *hostile) bodies(t *testing.T) map[string]string {
	link := h.link(h.target("https://example.com/bodies"))
	return map[string]string{
		"POST /v1/links": `{"target":"https://example.com/"}`, "POST /v1/links:batch": `{"links":[{"target":"https://example.com/"}]}`, "PATCH " + link: `{"title":"x"}`,
		"POST " + link + "/disable": `{"reason":"x"}`, "POST " + link + "/enable": `{"reason":"x"}`, "POST " + link + "/ban": `{"reason":"x"}`, "POST " + link + "/unban": `{"reason":"x"}`,
	}
}

func (h *hostile) brokenJSON(t *testing.T) {
	for call, fine := range h.bodies(t) {
		method, path, _ := strings.Cut(call, " ")
		open := strings.TrimSuffix(fine, "}")
		first := fine[1:] // fine as more fields of the same object
		for _, body := range []string{
			" ", "{", "[]", "null", "true", `"x"`, "1", "{]", "}", fine + "x", fine + fine, fine + ",", fine + "\x00", "\x00" + fine, "\ufeff" + fine, "'" + fine + "'", open, open + ",}", "{," + first,
			"{" + strings.TrimSuffix(first, "}") + "," + first, `{"unknown":1,` + first, `{"":1,` + first, strings.ToUpper(fine), `{"__proto__":{},` + first, `{"constructor":1,` + first,
			"// x\n" + fine, fine + "/* x */", strings.ReplaceAll(fine, `"`, `'`), strings.ReplaceAll(fine, ":", "="), `{"title":NaN,` + first, `{"title":undefined,` + first, `{"title":01,` + first,
			strings.Repeat("[", 100_000), strings.Repeat(`{"links":`, 50_000), strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000), `{"tags":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + "," + first,
			strings.Replace(fine, `":"`, `":"`+"\n", 1), strings.Replace(fine, `":"`, `":"`+"\x00", 1), strings.Replace(fine, `":"`, `":"\x`, 1), strings.Replace(fine, `":"`, `":"\ud800`, 1), strings.Replace(fine, `":"`, `":"\udc00\ud800`, 1), strings.Replace(fine, `":"`, `":"\u12`, 1),
			strings.Replace(fine, `":"`, `":"`+"\xff", 1), strings.Replace(fine, `":"`, `":"`+"\xc0\x80", 1), strings.Replace(fine, `":"`, `":"`+"\xed\xa0\x80", 1), strings.Replace(fine, `":"`, `":"`+"\xf4\x90\x80\x80", 1), "{\"\xff\":1," + first, fine + "\xff",
		} {
			a := h.send(method, path, body)
			refusedWith(t, fmt.Sprintf("%s %.60q", call, body), a, "invalid_request")
			if len(a.raw) > 2000 {
				t.Errorf("%s %.60q: an answer of %d bytes", call, body, len(a.raw))
			}
		}
	}
}

// types are the fields of a create, with the JSON type that each has.
var types = map[string]string{
	"target": "string", "domain": "string", "code": "string", "code_length": "number", "code_mode": "string", "dedupe": "boolean", "title": "string",
	"tags": "array", "redirect_status": "number", "query": "string", "cache_ttl": "number", "not_before": "string", "expires_at": "string", "expired_url": "string",
}

func (h *hostile) wrongTypes(t *testing.T) {
	values := map[string][]string{
		"string": {`"x"`, `"5"`, `""`, `"true"`}, "number": {"1", "0", "-1", "1.5", "1e3"}, "boolean": {"true", "false"}, "array": {"[]", `["x"]`, "[[]]"}, "object": {"{}", `{"x":1}`},
	}
	code := h.target("https://example.com/types")
	for field, want := range types {
		for kind, list := range values {
			if kind == want {
				continue
			}
			for _, value := range list {
				body := fmt.Sprintf(`{"target":"https://example.com/",%q:%s}`, field, value)
				if field == "target" {
					body = fmt.Sprintf(`{%q:%s}`, field, value)
				}
				h.refusedField(t, "POST", "/v1/links", body, field)
				h.refusedField(t, "POST", "/v1/links:batch", `{"links":[{"target":"https://example.com/"},`+body+`]}`, "links[1]."+field)
				if !slices.Contains([]string{"domain", "code", "code_length", "code_mode", "dedupe"}, field) {
					h.refusedField(t, "PATCH", h.link(code), fmt.Sprintf("{%q:%s}", field, value), field)
				}
			}
		}
	}
	for _, body := range []string{`{"tags":[1]}`, `{"tags":[null]}`, `{"tags":[["x"]]}`, `{"tags":[{}]}`} {
		h.refusedField(t, "PATCH", h.link(code), body, "tags[0]")
	}
	for _, value := range []string{"1", "true", "[]", "{}", "null"} {
		for _, action := range []string{"/disable", "/enable", "/ban", "/unban"} {
			h.refusedField(t, "POST", h.link(code, action), `{"reason":`+value+`}`, "reason")
		}
		if value != "true" && value != "null" {
			h.refusedField(t, "POST", h.link(code, "/ban"), `{"legal":`+value+`}`, "legal")
		}
		h.refusedField(t, "POST", "/v1/links:batch", `{"links":`+strings.Replace(value, "[]", "[1]", 1)+`}`, "")
		if value != "{}" { // a row without a target is refused alone
			h.refusedField(t, "POST", "/v1/links:batch", `{"links":[`+value+`]}`, "links[0]")
		}
	}
	h.refusedField(t, "POST", h.link(code, "/disable"), `{"legal":true}`, "legal")
}

// refusedField wants a 400 that names the field.
func (h *hostile) refusedField(t *testing.T, method, path, body, field string) {
	t.Helper()
	a := h.send(method, path, body)
	what := fmt.Sprintf("%s %s %.120s", method, path, body)
	refusedWith(t, what, a, "invalid_request")
	if a.status != http.StatusBadRequest || field != "" && a.str("field") != field {
		t.Errorf("%s: %d, field %q, want %q: %s", what, a.status, a.str("field"), field, a.raw)
	}
}

// wrong are values of the right type that are not valid.
var wrong = map[string][]string{
	"code_length":     {"-1", "0", "4", "65", "2147483648", "4294967301", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + strings.Repeat("0", 400), "-0.0", "05"},
	"redirect_status": {"-302", "0", "1", "200", "300", "303", "304", "305", "306", "399", "404", "65838", "4294967598", "18446744073709551918"},
	"cache_ttl":       {"-1", "31536001", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808"},
	"query":           {`""`, `"KEEP"`, `"keep "`, `"nonsense"`, `"keep\u0000"`, `"0"`},
	"code_mode":       {`"custom"`, `"RANDOM"`, `"random\u0000"`},
	"expires_at":      badTimes, "not_before": badTimes,
	"tags":  {`[""]`, `["a","a"]`, `["\u0000"]`, `["a\nb"]`, `["\u001b[31m"]`, `["\u0085"]`, `["` + strings.Repeat("é", 101) + `"]`, "[" + strings.Repeat(`"x",`, 50) + `"y"]`},
	"title": {`"\u0000"`, `"a\nb"`, `"\u001b[31m"`, `"\u007f"`, `"\u0085"`, `"` + strings.Repeat("é", 1025) + `"`},
}

var badTimes = []string{
	`""`, `"x"`, `"0"`, `"1900000000"`, `"2031-05-01"`, `"2031-05-01 10:48:00Z"`, `"2031-05-01T10:48:00"`, `"2031-13-01T00:00:00Z"`, `"2031-02-30T00:00:00Z"`, `"2031-05-01T24:00:00Z"`, `"2031-05-01T10:60:00Z"`,
	`"2031-05-01T10:48:00+25:00"`, `"2031-05-01T10:48:00+03:00 "`, `" 2031-05-01T10:48:00Z"`, `"2031-05-01T10:48:00z\u0000"`, `"99999-01-01T00:00:00Z"`, `"-001-01-01T00:00:00Z"`, `"0000-01-01T00:00:00Z"`, `"9999-12-31T23:59:59-23:59"`,
	`"1970-01-01T00:00:00Z"`, `"` + strings.Repeat("2", 10_000) + `"`, `"２０３１-05-01T10:48:00Z"`, `"now"`, `"tomorrow"`,
}

func (h *hostile) wrongValues(t *testing.T) {
	code := h.target("https://example.com/values")
	for field, values := range wrong {
		for _, value := range values {
			h.refusedField(t, "POST", "/v1/links", fmt.Sprintf(`{"target":"https://example.com/",%q:%s}`, field, value), field)
			if field != "code_length" && field != "code_mode" {
				h.refusedField(t, "PATCH", h.link(code), fmt.Sprintf("{%q:%s}", field, value), field)
			}
		}
	}
	for body, field := range map[string]string{
		`{"target":"https://example.com/","not_before":"2031-01-01T00:00:00Z","expires_at":"2031-01-01T00:00:00Z"}`: "expires_at",
		`{"target":"https://example.com/","not_before":"2031-01-02T00:00:00Z","expires_at":"2031-01-01T00:00:00Z"}`: "expires_at",
		`{"target":"https://example.com/","dedupe":true,"code":"own"}`:                                              "dedupe",
		`{"target":"https://example.com/","code":"own","code_length":7}`:                                            "",
		`{"title":"no target"}`: "target", `{"target":null}`: "target",
		`{"target":"https://example.com/","code_mode":"random","code_length":5}`: "code_length",
	} {
		h.refusedField(t, "POST", "/v1/links", body, field)
	}
	h.refusedField(t, "PATCH", h.link(code), `{"target":null}`, "target")
	for domain, want := range map[string]string{"a b": "invalid_request", "localhost:99999": "invalid_request", "\x00": "invalid_request", "nobody.example": "domain_not_owned", strings.Repeat("a.", 500): "invalid_request", "http://localhost": "invalid_request", "[::1": "invalid_request"} {
		refusedWith(t, fmt.Sprintf("domain %.40q", domain), h.send("POST", "/v1/links", fields{"target": "https://example.com/", "domain": domain}), want)
	}
	for _, reserved := range []string{"robots.txt", "favicon.ico"} {
		a := h.send("POST", "/v1/links", fields{"target": "https://example.com/", "code": reserved})
		refusedWith(t, "code "+reserved, a, "reserved_code")
	}
	refusedWith(t, "a loop", h.send("POST", "/v1/links", fields{"target": "http://" + h.domain() + "/x"}), "")
	refusedWith(t, "a loop", h.send("POST", "/v1/links", fields{"target": "http://" + h.ports["redirect"] + "/x"}), "")
}

// Rows do not depend on each other: the good ones of a batch are made.
func (h *hostile) wrongRows(t *testing.T) {
	rows := []string{`{"target":"https://example.com/row"}`, `{"target":"javascript:1"}`, `{"target":"https://example.com/","code":"a b"}`, `{"target":"https://example.com/","cache_ttl":-1}`, `{"title":"x"}`,
		`{"target":"https://example.com/row","code":"row-1"}`, `{"target":"https://example.com/row","code":"row-1"}`, `{"target":"https://example.com/","domain":"nobody.example"}`, `{"target":"https://example.com/row"}`}
	want := []string{"201", "400 invalid_target", "400 invalid_code", "400 invalid_request", "400 invalid_request", "201", "409 code_taken", "403 domain_not_owned", "201"}
	a := h.send("POST", "/v1/links:batch", `{"links":[`+strings.Join(rows, ",")+`]}`)
	results, _ := a.body["results"].([]any)
	if a.status != http.StatusOK || len(results) != len(rows) {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	for i, result := range results {
		got := fmt.Sprint(result.(fields)["status"])
		if problem, failed := result.(fields)["error"].(fields); failed {
			got += fmt.Sprint(" ", problem["code"])
		}
		if got != want[i] {
			t.Errorf("row %d %s: %s, want %s", i, rows[i], got, want[i])
		}
	}
}
