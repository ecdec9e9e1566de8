package effects_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hoplog/hoplog/gateway/effects"
)

// formOf is a request as a CDN reads it: method, URI, host, body and these headers.
func formOf(r *http.Request, own string, headers ...string) string {
	body, _ := io.ReadAll(r.Body)
	parts := []string{r.Method, r.RequestURI}
	if r.Host != own {
		parts = append(parts, "Host: "+r.Host)
	}
	for _, name := range headers {
		parts = append(parts, name+": "+r.Header.Get(name))
	}
	return strings.Join(append(parts, string(body)), " | ")
}

// TestPurgeAPIs: the texts for CDNs of several kinds, by the form of the requests that a local server gets. Two links under two
// names of their domain, one with a code that is escaped.
func TestPurgeAPIs(t *testing.T) {
	const json = "Content-Type: application/json"
	for name, c := range map[string]struct {
		request effects.PurgeRequest
		headers []string
		want    []string
	}{
		"Cloudflare, by URL": {
			effects.PurgeRequest{Method: "POST", URL: "/client/v4/zones/ZONE/purge_cache", Headers: []string{json, "Authorization: Bearer {{.Token}}"}, Body: `{"files":{{json .URLs}}}`, Batch: 7},
			[]string{"Authorization", "Content-Type"},
			[]string{`POST | /client/v4/zones/ZONE/purge_cache | Authorization: Bearer s3cr3t-token | Content-Type: application/json | {"files":["https://alias.example/%C3%A9","https://alias.example/%C3%A9/","https://alias.example/a","https://alias.example/a/","https://s.example/%C3%A9","https://s.example/%C3%A9/","https://s.example/a","https://s.example/a/"]}`},
		},
		"Cloudflare, by prefix": {
			effects.PurgeRequest{Method: "POST", URL: "/client/v4/zones/ZONE/purge_cache", Headers: []string{json, "Authorization: Bearer {{.Token}}"}, Body: `{"prefixes":{{json .Prefixes}}}`, Batch: 15},
			[]string{"Authorization"},
			[]string{`POST | /client/v4/zones/ZONE/purge_cache | Authorization: Bearer s3cr3t-token | {"prefixes":["alias.example/%C3%A9","alias.example/a","s.example/%C3%A9","s.example/a"]}`},
		},
		"Bunny, by wildcard": {
			effects.PurgeRequest{Method: "POST", URL: `/purge?url={{urlquery .URL "*"}}`, Headers: []string{"AccessKey: {{.Token}}"}, Batch: 15, Each: effects.EachPrefix},
			[]string{"AccessKey"},
			[]string{`POST | /purge?url=https%3A%2F%2Falias.example%2F%25C3%25A9%2A | AccessKey: s3cr3t-token | `, `POST | /purge?url=https%3A%2F%2Falias.example%2Fa%2A | AccessKey: s3cr3t-token | `,
				`POST | /purge?url=https%3A%2F%2Fs.example%2F%25C3%25A9%2A | AccessKey: s3cr3t-token | `, `POST | /purge?url=https%3A%2F%2Fs.example%2Fa%2A | AccessKey: s3cr3t-token | `},
		},
		"Fastly, one URL at a time": {
			effects.PurgeRequest{Method: "POST", URL: "/purge/{{.Host}}{{.Path}}", Headers: []string{"Fastly-Key: {{.Token}}", "Accept: application/json"}, Batch: 1, Each: effects.EachURL},
			[]string{"Fastly-Key"},
			[]string{`POST | /purge/alias.example/%C3%A9 | Fastly-Key: s3cr3t-token | `, `POST | /purge/alias.example/%C3%A9/ | Fastly-Key: s3cr3t-token | `, `POST | /purge/alias.example/a | Fastly-Key: s3cr3t-token | `,
				`POST | /purge/alias.example/a/ | Fastly-Key: s3cr3t-token | `, `POST | /purge/s.example/%C3%A9 | Fastly-Key: s3cr3t-token | `, `POST | /purge/s.example/%C3%A9/ | Fastly-Key: s3cr3t-token | `,
				`POST | /purge/s.example/a | Fastly-Key: s3cr3t-token | `, `POST | /purge/s.example/a/ | Fastly-Key: s3cr3t-token | `},
		},
		"Gcore, by path pattern": {
			effects.PurgeRequest{Method: "POST", URL: "/cdn/resources/7/purge", Headers: []string{json, "Authorization: apikey {{.Token}}"},
				Body: `{"paths":[{{range $i, $l := .Links}}{{if $i}},{{end}}{{json (print $l.Path "*")}}{{end}}]}`, Batch: 7},
			[]string{"Authorization"},
			[]string{`POST | /cdn/resources/7/purge | Authorization: apikey s3cr3t-token | {"paths":["/%C3%A9*","/a*"]}`},
		},
		"Varnish, by a PURGE of the URL": {
			effects.PurgeRequest{Method: "PURGE", URL: "{{.Path}}", Headers: []string{"Host: {{.Host}}"}, Batch: 1, Each: effects.EachURL},
			nil,
			[]string{`PURGE | /%C3%A9 | Host: alias.example | `, `PURGE | /%C3%A9 | Host: s.example | `, `PURGE | /%C3%A9/ | Host: alias.example | `, `PURGE | /%C3%A9/ | Host: s.example | `,
				`PURGE | /a | Host: alias.example | `, `PURGE | /a | Host: s.example | `, `PURGE | /a/ | Host: alias.example | `, `PURGE | /a/ | Host: s.example | `},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var got []string
			var server *httptest.Server
			server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				form := formOf(r, strings.TrimPrefix(server.URL, "http://"), c.headers...)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, form)
			}))
			defer server.Close()
			cfg := newCDN(t).config()
			cfg.Request = c.request
			cfg.Request.URL, cfg.Request.Token, cfg.Gather = server.URL+c.request.URL, secret, 300*time.Millisecond
			for code, err := range all(t, purger(t, cfg), "a", "é") {
				if err != nil {
					t.Errorf("%s: %v", code, err)
				}
			}
			slices.Sort(got)
			// Which of two links comes first in a request is not fixed.
			if len(got) == 1 && strings.Contains(got[0], `["/a*","/%C3%A9*"]`) {
				got[0] = strings.Replace(got[0], `["/a*","/%C3%A9*"]`, `["/%C3%A9*","/a*"]`, 1)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestPurgeOfEachFailsAsOne: a link is purged when all its URLs are.
func TestPurgeOfEachFailsAsOne(t *testing.T) {
	c := newCDN(t)
	c.answer = func(asked []string) (int, map[string]string) {
		if strings.HasSuffix(asked[0], "alias.example/a/") {
			return http.StatusBadGateway, nil
		}
		return http.StatusOK, nil
	}
	cfg := c.config()
	cfg.Request = effects.PurgeRequest{Method: "POST", URL: c.URL + "/{{.Host}}{{.Path}}", Batch: 1, Each: effects.EachURL}
	if err := all(t, purger(t, cfg), "a")["a"]; err == nil {
		t.Error("one of four failed, and the link counts as purged")
	}
	cfg.Request.Each = "page"
	if p, err := effects.NewPurger(cfg); err == nil {
		p.Close()
		t.Error("an unknown thing to make requests for is accepted")
	}
}

// TestSweptDoNotHoldUpChanges: while the CDN takes its time with what lists concern, changes of links are purged.
func TestSweptDoNotHoldUpChanges(t *testing.T) {
	c := newCDN(t)
	release := make(chan struct{})
	c.answer = func(urls []string) (int, map[string]string) {
		if strings.Contains(urls[0], "swept") {
			<-release
		}
		return http.StatusOK, nil
	}
	cfg := c.config()
	cfg.Settle = 10 * time.Millisecond
	p := purger(t, cfg)
	var swept sync.WaitGroup
	for range 40 {
		swept.Go(func() {
			if err := p.Purge(t.Context(), &effects.Change{Namespace: "s.example", Code: "swept", Version: 1, By: "denylist: host evil.example"}); err != nil {
				t.Error(err)
			}
		})
	}
	for end := time.Now().Add(patient); len(c.requests()) < 2 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	if err := all(t, p, "a")["a"]; err != nil {
		t.Error(err)
	}
	close(release)
	swept.Wait()
}
