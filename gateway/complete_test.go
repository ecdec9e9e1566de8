package gateway

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

// A node that may not know everything says 503 for what it does not find, and serves what it knows.
func TestRedirectIncomplete(t *testing.T) {
	var why atomic.Pointer[error]
	why.Store(new(error))
	node := newRedirectNode(t, func(d *RedirectDeps) {
		d.Complete = func() error { return *why.Load() }
		d.Domains = redirectTestNotFound{d.Domains, map[string]string{"b.example": "https://example.com/none"}}
	})
	node.add("known", &pb.Redirect{Target: "https://example.com/"})
	node.addTo("b.example", "soon", &pb.Redirect{Target: "https://example.com/", NotBeforeUs: redirectTestNow + 1})
	for _, c := range []struct {
		why    error
		status int
	}{{nil, http.StatusNotFound}, {errors.New("log alarm"), http.StatusServiceUnavailable}} {
		why.Store(&c.why)
		if a := node.get("/known"); a.status != http.StatusFound {
			t.Errorf("%v: the known link: %d", c.why, a.status)
		}
		if a := node.get("/unknown"); a.status != c.status || (c.why != nil) != (a.header.Get("Retry-After") != "") {
			t.Errorf("%v: an unknown code: %d %v", c.why, a.status, a.header)
		}
		node.host = "b.example"
		elsewhere := map[bool]int{true: http.StatusFound, false: http.StatusServiceUnavailable}[c.why == nil]
		if a := node.get("/unknown"); a.status != elsewhere || (c.why != nil) != (a.location() == "") {
			t.Errorf("%v: an unknown code where the domain says where to: %d %v", c.why, a.status, a.header)
		}
		if a := node.get("/soon"); a.location() != "https://example.com/none" {
			t.Errorf("%v: a link that is known and not valid yet: %d %v", c.why, a.status, a.header)
		}
		node.host = "unknown.example"
		if a := node.get("/known"); a.status != c.status {
			t.Errorf("%v: an unknown host: %d", c.why, a.status)
		}
		node.host = "s.example"
	}
}

func testAPIIncomplete(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/incomplete"})
	deps := r.deps
	deps.Metrics, deps.Logger, deps.Complete = prometheus.NewRegistry(), apiQuietLogger(), func() error { return errors.New("log alarm") }
	api, err := NewAPI(deps)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	defer server.Close()
	if a := apiCall(t, server.URL, "GET", apiPath(link, ""), nil); a.status != http.StatusOK {
		t.Errorf("a known link: %v", a)
	}
	unknown := link
	unknown.Code = "unknown"
	wantProblem(t, apiCall(t, server.URL, "GET", apiPath(unknown, ""), nil), 503, ErrorCodeUnavailable, "")
	unknown = link
	unknown.Domain = "unknown.example"
	wantProblem(t, apiCall(t, server.URL, "GET", apiPath(unknown, ""), nil), 503, ErrorCodeUnavailable, "")
	wantProblem(t, apiCall(t, server.URL, "GET", apiPath(link, ""), nil, "Key", "nobody's"), 503, ErrorCodeUnavailable, "Authorization")
}

// lagging is a control read model that has not heard of any domain yet.
type lagging struct{ ControlReader }

func (l lagging) Current() *commands.Control {
	state := l.ControlReader.Current()
	hash := sha256.Sum256([]byte(apiTestAlice))
	return commands.EvolveControl(nil, &pb.Envelope{Seq: state.Seq - 1, Events: []*pb.Event{{Kind: &pb.Event_KeyAdded{KeyAdded: &pb.KeyAdded{Key: state.Key(hash)}}}}})
}

// A link is there once it can be read, whether or not its domain was heard of.
func testAPIKnowsLinkBeforeDomain(t *testing.T, r *apiRig) {
	link := r.create(t, map[string]any{"target": "https://example.com/early"})
	deps := r.deps
	deps.Metrics, deps.Control = prometheus.NewRegistry(), lagging{r.deps.Control}
	api, err := NewAPI(deps)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	defer server.Close()
	if a := apiCall(t, server.URL, "GET", apiPath(link, ""), nil); a.status != http.StatusOK {
		t.Errorf("read: %v", a)
	}
	if a := apiCall(t, server.URL, "PATCH", apiPath(link, ""), `{"title":"early"}`); a.status != http.StatusOK {
		t.Errorf("changed: %v", a)
	}
	link.Code = "unknown"
	wantProblem(t, apiCall(t, server.URL, "GET", apiPath(link, ""), nil), 404, ErrorCodeNotFound, "")
}
