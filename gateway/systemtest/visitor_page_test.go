package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// visitorPages are the addresses of a node's pages, with the status of each.
func visitorPages(p *process) map[string]int {
	pages := map[string]int{"/no-such-link": http.StatusNotFound}
	for name, status := range map[string]int{"disable": http.StatusGone, "ban": http.StatusForbidden, "delete": http.StatusGone} {
		code := p.made(fields{"target": "https://secret.example/"})
		switch name {
		case "delete":
			p.api("DELETE", p.link(code), nil)
		default:
			p.api("POST", p.link(code, "/"+name), fields{"reason": "a test"})
		}
		pages["/"+code], pages["/"+code+"+"] = status, status
	}
	legal := p.made(fields{"target": "https://secret.example/"})
	p.api("POST", p.link(legal, "/ban"), fields{"reason": "legal: a test"})
	pages["/"+legal] = http.StatusUnavailableForLegalReasons
	long := p.made(fields{"target": "https://xn--bcher-kva.example/" + strings.Repeat("x", 3000), "expires_at": "2099-01-01T00:00:00Z"})
	pages["/"+long+"+"] = http.StatusOK
	for path, status := range pages {
		p.eventually(path+" is what it is to be", func() bool { return p.visit(path).status == status })
	}
	return pages
}

// The pages of a redirect node in a browser, in both of their languages: they render without script and without a complaint,
// fit a narrow window, have a dark form, and keep the rules of accessibility.
func TestVisitorPages(t *testing.T) {
	p := shared(t)
	pages := visitorPages(p)
	rules := axe(t)
	for tag, accept := range map[string]string{"en": "en-US,en", "zh-Hans": "zh-TW,zh"} {
		t.Run(tag, func(t *testing.T) {
			b := openTab(t, chromedp.Flag("accept-lang", accept))
			b.do(chromedp.EmulateViewport(320, 640))
			for path, status := range pages {
				b.visitorPage(rules, "http://"+p.domain()+path, status, tag)
			}
		})
	}
}

// visitorPage judges one page, in the light and in the dark.
func (b *tab) visitorPage(rules, address string, status int, tag string) {
	b.t.Helper()
	for _, scheme := range []struct{ name, background string }{{"light", "rgb(255, 255, 255)"}, {"dark", "rgb(23, 23, 27)"}} {
		name := address + " in the " + scheme.name
		b.do(b.prefers(scheme.name), chromedp.Navigate(address))
		if got := b.text(`[document.documentElement.lang, document.scripts.length, document.querySelectorAll('main h1').length, performance.getEntriesByType('navigation')[0].responseStatus].join(' ')`); got != fmt.Sprint(tag, " 0 1 ", status) {
			b.t.Errorf("%s: %s", name, got)
		}
		if got := b.text(`getComputedStyle(document.body).backgroundColor`); got != scheme.background {
			b.t.Errorf("%s: the style is not in force: %s", name, got)
		}
		if got := b.text(`document.documentElement.scrollWidth`); got != "320" {
			b.t.Errorf("%s: it is %s pixels wide in a window of 320", name, got)
		}
		if b.text(`document.body.innerText.includes('secret.example')`) != "false" {
			b.t.Errorf("%s tells the target", name)
		}
		complaints, asked := b.heard()
		for _, c := range complaints {
			if !strings.Contains(c, fmt.Sprint(status)) { // the console notes every status that is an error
				b.t.Errorf("%s: the console complains: %s", name, c)
			}
		}
		for _, other := range asked {
			if !strings.HasSuffix(address, strings.TrimPrefix(other, "http://")) && !strings.HasPrefix(address, strings.TrimSuffix(other, "favicon.ico")) {
				b.t.Errorf("%s asked for %s", name, other)
			}
		}
		if rules != "" {
			b.accessible(name, rules)
		}
	}
}

// prefers makes the browser's user prefer a colour scheme.
func (b *tab) prefers(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	})
}

// axe returns the rules of accessibility as a script, "" where they are not there, which is said.
func axe(t *testing.T) (rules string) {
	t.Helper()
	script, err := os.ReadFile("../../.tools/axe/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Log("NOT CHECKED: the rules of accessibility are not there (make axe)")
	}
	return string(script)
}

// accessible runs all the rules on the page. What they do themselves does not count as the page's.
func (b *tab) accessible(name, rules string) {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](rules+`; typeof axe`)); err != nil {
		b.t.Fatal(err)
	}
	b.text(`(window.judged = '', axe.run({preload: false}).then(r => window.judged = JSON.stringify({ passes: r.passes.length,
		violations: r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join('; ')) })), 0)`)
	b.waitFor("axe has judged "+name, `window.judged !== ''`)
	var judged struct {
		Passes     int
		Violations []string
	}
	if err := json.Unmarshal([]byte(b.text(`window.judged`)), &judged); err != nil || judged.Passes < 10 {
		b.t.Errorf("%s: %v, %+v", name, err, judged)
	}
	for _, v := range judged.Violations {
		b.t.Errorf("%s: %s", name, v)
	}
	b.heard()
}

// Who reads a preview goes on by its link, and that visit counts.
func TestVisitorGoesOnFromThePreview(t *testing.T) {
	p := shared(t)
	landing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>landed</title>"))
	}))
	t.Cleanup(landing.Close)
	target := landing.URL + `/?q="><script>window.hostile=1</script>`
	code := p.made(fields{"target": target})
	b := openTab(t)
	b.do(chromedp.Navigate("http://"+p.domain()+"/"+code+"+"), chromedp.WaitVisible("main a"))
	if got := b.text(`document.scripts.length + ' ' + window.hostile + ' ' + location.pathname`); got != "0 undefined /"+code+"+" {
		t.Error(got)
	}
	if got := b.text(`document.body.innerText`); !strings.Contains(got, target) || !strings.Contains(got, strings.TrimPrefix(landing.URL, "http://")) {
		t.Errorf("the preview does not tell the target: %s", got)
	}
	b.do(chromedp.Click("main a"))
	b.waitFor("the target is reached", `document.title === 'landed'`)
	if complaints, _ := b.heard(); len(complaints) > 0 {
		t.Errorf("the console complains: %q", complaints)
	}
	p.eventually("one click is counted", func() bool { return clicksOf(p, code) == 1 })
}

// A link may say where its visitors are sent once it is no longer in use.
func TestVisitorIsSentElsewhereAfterTheEnd(t *testing.T) {
	p := shared(t)
	var link struct {
		Code       string
		ExpiredURL string `json:"expired_url"`
	}
	if code := p.cliJSON(&link, "link", "create", "https://example.com/sale", "--expired-url", "https://Example.com/over?a=%2f"); code != 0 || link.ExpiredURL != "https://Example.com/over?a=%2f" {
		t.Fatalf("link create: exit %d, %+v", code, link)
	}
	p.eventually("it is served", func() bool { return p.visitAs("HEAD", "/"+link.Code).status == http.StatusFound })
	if a := p.visit("/" + link.Code); a.header.Get("Location") != "https://example.com/sale" {
		t.Errorf("while it is in use: %d %v", a.status, a.header)
	}
	refusedWith(t, "a loop", p.api("PATCH", p.link(link.Code), fields{"expired_url": "http://" + p.domain() + "/x"}), "invalid_target")
	refusedWith(t, "no URL", p.api("PATCH", p.link(link.Code), fields{"expired_url": "javascript:alert(1)"}), "invalid_target")
	p.api("POST", p.link(link.Code, "/disable"), nil)
	p.eventually("its visitors are sent elsewhere", func() bool {
		a := p.visitAs("HEAD", "/"+link.Code) // a GET may come before that, and count
		return a.status == http.StatusFound && a.header.Get("Location") == link.ExpiredURL && strings.Contains(a.header.Get("Cache-Control"), "no-store")
	})
	if a := p.api("PATCH", p.link(link.Code), `{"expired_url":null}`); a.status != http.StatusOK || a.body["expired_url"] != nil {
		t.Errorf("%d %s", a.status, a.raw)
	}
	p.eventually("and met with 410 again", func() bool { return p.visit("/"+link.Code).status == http.StatusGone })
	if a := p.api("GET", p.link(link.Code, "/history"), nil); !strings.Contains(a.raw, `"expired_url":{"from":"https://Example.com/over?a=%2f","to":null}`) {
		t.Errorf("the history does not show it: %s", a.raw)
	}
	p.eventually("one click is counted", func() bool { return clicksOf(p, link.Code) == 1 })
}
