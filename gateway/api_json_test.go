package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas"
)

// jsonSeeds are bodies of every operation, and what is near them.
var jsonSeeds = []string{
	`{"target":"https://example.com/"}`,
	`{"target":"https:\/\/example.com\/\u00e4\ud83c\udf5e?a=%2f","title":"\"\\\n","tags":["a","b"],"redirect_status":301,"cache_ttl":60,"query":"drop",` +
		`"not_before":"2031-05-01T10:48:00+03:00","expires_at":null,"domain":"s.example","code":"x","code_length":7,"code_mode":"random","dedupe":true}`,
	`{"links":[{"target":"https://example.com/"},{"target":"x","tags":[]}]}`,
	`{"reason":"spam","legal":true}`,
	`{"title":null,"reason":"x"}`,
	`{}`, `[]`, `null`, `"x"`, `1`, ``, ` `, `{`, `{"`, `{"target"`, `{"target":`, `{"target":"`, `{"target":"\`, `{"target":"\u`, `{"target":"\ud800\u0041"}`, `{"cache_ttl":-0}`, `{"cache_ttl":01}`,
	`{"cache_ttl":1e3}`, `{"cache_ttl":-}`, `{"cache_ttl":99999999999999999999}`, `{"dedupe":tru}`, `{"dedupe":truex}`, `{"tags":[1,]}`, `{"tags":["a"` + "\x00", "{\"a\xff\":1}", `{"links":[[[[`,
}

// FuzzRequestBodies: no body makes a decoder panic or fail with anything but a refusal that is the caller's fault, and what
// is accepted is what encoding/json reads.
func FuzzRequestBodies(f *testing.F) {
	for _, seed := range jsonSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fields, err := decodeCreate(body)
		checkBody(t, body, err)
		if err == nil {
			checkSameCreate(t, body, &fields)
			d := testDraft()
			_, err := d.create(&fields, "key")
			checkBodyRefusal(t, body, err)
		}
		rows, err := decodeBatch(body)
		checkBody(t, body, err)
		if err == nil && (len(rows) == 0 || len(rows) > maxBatchRows) {
			t.Errorf("%q: %d rows", body, len(rows))
		}
		update, err := decodeUpdate(body)
		checkBody(t, body, err)
		if err == nil {
			_, err := testDraft().update(&update, "s.example", "x", ifMatch{})
			checkBodyRefusal(t, body, err)
		}
		_, _, err = decodeStatus(body, true)
		if len(body) > 0 {
			checkBody(t, body, err)
		}
	})
}

// checkBody: an accepted body is one JSON object in valid UTF-8 without repeated names; anything else is refused.
func checkBody(t *testing.T, body []byte, err error) {
	t.Helper()
	checkBodyRefusal(t, body, err)
	if err != nil {
		return
	}
	var object map[string]any
	if jsonErr := json.Unmarshal(body, &object); jsonErr != nil || object == nil || !utf8.Valid(body) {
		t.Errorf("%q was accepted; encoding/json says %v", body, jsonErr)
	}
}

func checkBodyRefusal(t *testing.T, body []byte, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var refusal *commands.Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("%q: %v is no refusal", body, err)
	}
	if status := problemOf(refusal).Status; status < 400 || status > 499 || !utf8.ValidString(refusal.Detail) || !utf8.ValidString(refusal.Field) {
		t.Errorf("%q: status %d, %+v", body, status, refusal)
	}
}

// checkSameCreate compares what was read with what encoding/json reads, which knows neither null nor presence.
func checkSameCreate(t *testing.T, body []byte, got *linkFields) {
	t.Helper()
	var want struct {
		Target         string   `json:"target"`
		Title          string   `json:"title"`
		Tags           []string `json:"tags"`
		RedirectStatus int64    `json:"redirect_status"`
		Query          string   `json:"query"`
		CacheTTL       int64    `json:"cache_ttl"`
		NotBefore      string   `json:"not_before"`
		ExpiresAt      string   `json:"expires_at"`
		Domain         string   `json:"domain"`
		Code           string   `json:"code"`
		CodeLength     int64    `json:"code_length"`
		CodeMode       string   `json:"code_mode"`
		Dedupe         bool     `json:"dedupe"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&want); err != nil {
		t.Fatalf("%q was accepted; encoding/json says %v", body, err)
	}
	if !slices.Equal(want.Tags, got.tags) {
		t.Errorf("%q: tags %q, want %q", body, got.tags, want.Tags)
	}
	have := []any{got.target, got.title, got.redirectStatus, got.query, got.cacheTTL, got.notBefore, got.expiresAt, got.domain, got.code, got.codeLength, got.codeMode, got.dedupe}
	wanted := []any{want.Target, want.Title, want.RedirectStatus, want.Query, want.CacheTTL, want.NotBefore, want.ExpiresAt, want.Domain, want.Code, want.CodeLength, want.CodeMode, want.Dedupe}
	if !reflect.DeepEqual(have, wanted) {
		t.Errorf("%q:\n got %q\nwant %q", body, have, wanted)
	}
}

// The decoders and the API's description know the same fields.
func TestDecodersMatchTheDescription(t *testing.T) {
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `yaml:"properties"`
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(schemas.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	for schema, decode := range map[string]func([]byte) error{
		"LinkCreate":   func(b []byte) error { _, err := decodeCreate(b); return err },
		"LinkUpdate":   func(b []byte) error { _, err := decodeUpdate(b); return err },
		"LinkBatch":    func(b []byte) error { _, err := decodeBatch(b); return err },
		"StatusChange": func(b []byte) error { _, _, err := decodeStatus(b, false); return err },
		"Ban":          func(b []byte) error { _, _, err := decodeStatus(b, true); return err },
	} {
		described := document.Components.Schemas[schema].Properties
		if len(described) == 0 {
			t.Fatalf("%s is not described", schema)
		}
		for _, name := range []string{"target", "title", "tags", "redirect_status", "query", "cache_ttl", "not_before", "expires_at", "domain", "code", "code_length", "code_mode", "dedupe", "reason", "legal", "links"} {
			err := decode([]byte(`{"` + name + `":{}}`)) // of the wrong type for every field
			known := err == nil || !strings.Contains(err.Error(), "is not a field")
			if _, is := described[name]; is != known {
				t.Errorf("%s.%s: described %v, decoded %v (%v)", schema, name, is, known, err)
			}
		}
	}
}

// Every code that the description lists has its class, and the other way round.
func TestErrorTableMatchesTheDescription(t *testing.T) {
	for code, class := range errorClasses {
		if !ErrorCode(code).Valid() {
			t.Errorf("%s is not in the description", code)
		}
		if class.status < 400 || class.title == "" || (class.status == 503 || class.status == 429) != (class.retryAfter > 0) {
			t.Errorf("%s: %+v", code, class)
		}
	}
	var document struct {
		Components struct {
			Schemas struct {
				ErrorCode struct {
					Enum []string `yaml:"enum"`
				} `yaml:"ErrorCode"`
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(schemas.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	for _, code := range document.Components.Schemas.ErrorCode.Enum {
		if _, known := errorClasses[code]; !known {
			t.Errorf("%s has no class", code)
		}
	}
	if n := len(document.Components.Schemas.ErrorCode.Enum); n != len(errorClasses) {
		t.Errorf("%d codes described, %d known", n, len(errorClasses))
	}
	if got := problemOf(commands.Refuse("from_a_newer_writer", "", "x")); got.Status != 422 || got.Title == "" {
		t.Errorf("%+v", got)
	}
}

func BenchmarkDecodeCreate(b *testing.B) {
	body := []byte(jsonSeeds[1])
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := decodeCreate(body); err != nil {
			b.Fatal(err)
		}
	}
}
