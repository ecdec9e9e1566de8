package effects

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/template"

	"golang.org/x/net/http/httpguts"
)

// PurgeRequest is the template of the request that a CDN purges by. Its texts are Go templates over PurgeData.
type PurgeRequest struct {
	Method  string
	URL     string
	Headers []string // "Name: value"
	Body    string   // "": none
	// Token is a secret that the texts may name as .Token. It is never shown, in no error either.
	Token string
	// Batch is how many links one request may purge. With 1, texts may name the fields of PurgeLink.
	Batch int
	// Each: a CDN that takes one URL, or one prefix, at a time gets a request for each of a link's. Batch does not count then.
	Each PurgeEach
}

// PurgeEach is what a request of its own is made for.
type PurgeEach string

// What requests are made for.
const (
	EachBatch  PurgeEach = ""
	EachURL    PurgeEach = "url"
	EachPrefix PurgeEach = "prefix"
)

// PurgeLink is one link to purge. URL, Prefix, Host and Path are those under the name of its namespace, without a slash at the
// end; in a request for each URL or prefix, those of that one.
type PurgeLink struct {
	Namespace, Code string
	Version         uint64
	URL             string // https://s.example/abc
	Prefix          string // s.example/abc
	Host            string // s.example
	Path            string // /abc
}

// PurgeData is what the texts of a request are filled from. PurgeLink is that of the only link when requests carry one, else
// naming its fields is an error.
type PurgeData struct {
	*PurgeLink
	Links []PurgeLink
	URLs  []string // of all links, each under every name of its domain, without and with a slash at the end
	// Prefixes are the URLs without scheme and slash at the end: what begins so is the link with whatever query, or another link
	// whose code begins with this one's, which costs a miss.
	Prefixes []string
	Token    string
}

// purgeTemplate is a PurgeRequest, parsed.
type purgeTemplate struct {
	PurgeRequest
	url, body *template.Template
	headers   []*template.Template // name and value in turn
}

var purgeFuncs = template.FuncMap{
	"json": func(v any) (string, error) {
		text, err := json.Marshal(v)
		return string(text), err
	},
	"join": strings.Join,
}

// parse checks the texts by filling them in.
func (r PurgeRequest) parse() (*purgeTemplate, error) {
	t := &purgeTemplate{PurgeRequest: r}
	var all error
	text := func(name, text string) *template.Template {
		parsed, err := template.New(name).Funcs(purgeFuncs).Option("missingkey=error").Parse(text)
		all = errors.Join(all, err)
		return parsed
	}
	t.url, t.body = text("url", r.URL), text("body", r.Body)
	for i, header := range r.Headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			return nil, fmt.Errorf("line %d of the purge headers: want Name: value", i+1) // it may be a secret
		}
		t.headers = append(t.headers, text("header", strings.TrimSpace(name)), text("header", strings.TrimSpace(value)))
	}
	if all != nil {
		return nil, fmt.Errorf("reading the purge request: %w", all)
	}
	sample := PurgeLink{Namespace: "s.example", Code: "abc", Version: 1, URL: "https://s.example/abc", Prefix: "s.example/abc", Host: "s.example", Path: "/abc"}
	request, err := t.fill(PurgeData{Links: []PurgeLink{sample}, URLs: []string{sample.URL}, Prefixes: []string{sample.Prefix}})
	if err != nil {
		return nil, err
	}
	if u := request.URL; (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("the purge URL must begin with http:// or https:// and a host")
	}
	return t, nil
}

// fill makes the request that purges links; the token and the only link's fields are filled in here.
func (t *purgeTemplate) fill(data PurgeData) (*http.Request, error) {
	data.Token = t.Token
	if t.Batch == 1 {
		data.PurgeLink = &data.Links[0]
	}
	var failed error
	text := func(of *template.Template) string {
		var b strings.Builder
		if err := of.Execute(&b, data); err != nil {
			failed = errors.Join(failed, t.explain(of.Name(), err))
		}
		return b.String()
	}
	target, body := text(t.url), text(t.body)
	request, err := http.NewRequest(t.Method, target, strings.NewReader(body))
	if err != nil {
		return nil, errors.Join(failed, t.hide(fmt.Errorf("making the purge request: %w", withoutURL(err))))
	}
	for i := 0; i < len(t.headers); i += 2 {
		name, value := text(t.headers[i]), text(t.headers[i+1])
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, errors.Join(failed, fmt.Errorf("line %d of the purge headers is no header: a name or value has characters that it must not have", i/2+1))
		}
		if http.CanonicalHeaderKey(name) == "Host" {
			request.Host = value
			continue
		}
		request.Header.Set(name, value)
	}
	if failed != nil {
		return nil, failed
	}
	return request, nil
}

func (t *purgeTemplate) explain(part string, err error) error {
	if t.Batch != 1 && strings.Contains(err.Error(), "PurgeLink") {
		return fmt.Errorf("the purge %s names a field of one link, but a request may carry %d: use .URLs, .Prefixes or .Links, a batch of 1, or a request for each URL or prefix", part, t.Batch)
	}
	return t.hide(fmt.Errorf("filling in the purge %s: %w", part, err))
}

// hide removes the token from what an error says.
func (t *purgeTemplate) hide(err error) error {
	if t.Token == "" || !strings.Contains(err.Error(), t.Token) {
		return err
	}
	return errors.New(t.hidden(err.Error()))
}

func (t *purgeTemplate) hidden(text string) string {
	if t.Token == "" {
		return text
	}
	return strings.ReplaceAll(text, t.Token, "***")
}

// withoutURL drops the URL from an error of the HTTP client: it may carry a secret.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
