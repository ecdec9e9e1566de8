//go:build synctests

package simulation

import (
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/schemas/pb"
)

// checkShown holds a link that the API shows against the truth at the version that it names.
func (w *world) checkShown(what string, l *life, shown *gateway.Link) {
	link := w.truth.version(shown.Domain, shown.Code, shown.Version)
	if link == nil {
		w.failUnlessOver("%s shows %s/%s at version %d, and the log does not come to it", what, shown.Domain, shown.Code, shown.Version)
		return
	}
	want := gateway.ShowLink(link, l.clock())
	got := *shown
	got.PropagationMs = nil
	if !reflect.DeepEqual(plain(got), plain(want)) {
		w.fail("%s shows\n%s\nand the log says\n%s", what, plain(got), plain(want))
	}
}

func plain(link gateway.Link) string {
	text, _ := json.Marshal(link) // of fields that all marshal
	return string(text)
}

// read asks for a link, at the position where it was last seen or at any state that a process has.
func (c *client) read(k known) {
	r := &request{method: http.MethodGet, path: linkPath(k.domain, k.code), owner: k.owner}
	least := uint64(0)
	if c.rng.IntN(3) > 0 && k.position.Seq > 0 {
		r.position = k.position.String()
		least = c.w.truth.versionAt(k.domain, k.code, k.position.Seq)
	}
	p := c.anyAPI()
	l := p.current()
	if l != nil {
		least = max(least, l.shown.of(k.domain, k.code))
	}
	a := c.ask(p, r)
	if a.lost() || a.life != l {
		return
	}
	switch {
	case a.status == http.StatusOK && a.link.Version < least:
		c.w.fail("%s was answered %s, it is at version %d at least", r, a, least)
	case a.status == http.StatusOK:
		c.w.checkShown(r.String(), l, &a.link)
		l.shown.raise(k.domain, k.code, a.link.Version)
	case a.status == http.StatusNotFound && least == 0:
	case a.status == http.StatusServiceUnavailable && r.position != "":
	default:
		c.w.fail("%s was answered %s, the link is at version %d at least", r, a, least)
	}
}

// history asks for a link's history and follows it from version to version.
func (c *client) history(k known) {
	r := &request{method: http.MethodGet, path: linkPath(k.domain, k.code) + "/history", owner: k.owner, other: true}
	if k.position.Seq > 0 {
		r.position = k.position.String()
	}
	least := c.w.truth.versionAt(k.domain, k.code, k.position.Seq)
	a := c.ask(c.anyAPI(), r)
	if a.lost() || a.status == http.StatusServiceUnavailable {
		return
	}
	var h gateway.History
	if err := json.Unmarshal(a.body, &h); err != nil || a.status != http.StatusOK || uint64(len(h.Events)) < least {
		c.w.fail("%s was answered %s with %d events, there are %d at least: %v", r, a, len(h.Events), least, err)
		return
	}
	for i, event := range h.Events {
		p, err := events.ParsePosition(event.Position)
		if err == nil && c.w.truth.at(p) == nil { // the process may have read it before the truth did
			c.w.failUnlessOver("%s: event %d is at %s, and the log does not come to it", r, i, event.Position)
			return
		}
		if err != nil || event.Version != uint64(i)+1 || c.w.truth.versionAt(k.domain, k.code, p.Seq) != event.Version {
			c.w.fail("%s: event %d is version %d at %s", r, i, event.Version, event.Position)
		}
	}
}

// list asks for the first page of an owner's links. A link at whose position it is asked, or with which this very process
// answered a write, must be there.
func (c *client) list(k known) { c.listOf(c.anyAPI(), k) }

func (c *client) listOf(p *process, k known) {
	if k.code == "" {
		return
	}
	l, least := p.current(), uint64(0)
	if l != nil {
		least = l.written.of(k.domain, k.code)
	}
	r := &request{method: http.MethodGet, path: "/v1/links?limit=1000", owner: k.owner, other: true}
	if k.position.Seq > 0 {
		r.position = k.position.String()
	}
	a := c.ask(p, r)
	if a.lost() || a.life != l || a.status == http.StatusServiceUnavailable {
		return
	}
	var page gateway.LinkPage
	if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
		c.w.fail("%s was answered %s: %v", r, a, err)
		return
	}
	found := false
	for i := range page.Links {
		c.w.checkShown(r.String(), a.life, &page.Links[i])
		if page.Links[i].Domain == k.domain && page.Links[i].Code == k.code {
			if found = true; page.Links[i].Version < least {
				c.w.fail("%s lists %s/%s at version %d, a write was answered with %d", r, k.domain, k.code, page.Links[i].Version, least)
			}
		}
	}
	version := max(least, c.w.truth.versionAt(k.domain, k.code, k.position.Seq))
	if version > 0 && !found && page.NextCursor == nil && !c.w.truth.comesToDelete(k.domain, k.code) {
		c.w.failUnlessOver("%s does not list %s/%s, which is at version %d there", r, k.domain, k.code, version)
	}
}

// latest returns a link as it is now.
func (t *truth) latest(domain, code string) *pb.Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.links[events.RouteKey(domain, code)]
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1].Link
}

// comesToDelete reports whether a link is deleted, once the log says so: a process may have read it before the truth did.
func (t *truth) comesToDelete(domain, code string) bool {
	return t.until(func() bool {
		list := t.links[events.RouteKey(domain, code)]
		return len(list) > 0 && list[len(list)-1].GetDeleted()
	})
}

// inquire asks what became of a write that was answered.
func (c *client) inquire(p *promise, position string) {
	r := &request{method: http.MethodGet, path: "/v1/requests/" + p.request.key, owner: p.request.owner, position: position, other: true}
	a := c.ask(c.anyAPI(), r)
	if a.lost() || a.status == http.StatusServiceUnavailable {
		return
	}
	var report gateway.RequestReport
	if err := json.Unmarshal(a.body, &report); err != nil || a.status != http.StatusOK {
		c.w.fail("%s was answered %s: %v", r, a, err)
		return
	}
	p.mu.Lock()
	final := p.final
	p.mu.Unlock()
	if final == nil {
		return
	}
	got := verdict{}
	switch {
	case report.State == gateway.RequestStateUnknown && position == "":
		return
	case report.Error != nil:
		got.failed = string(report.Error.Code)
	case report.Link != nil:
		got.domain, got.code, got.version = report.Link.Domain, report.Link.Code, report.Link.Version
	}
	if got.failed != final.failed || got.failed == "" && got != *final {
		c.w.fail("%s was told %s %s, the key was answered %s", r, report.State, got, final)
	}
}
