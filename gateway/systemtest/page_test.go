package systemtest

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// tab is a tab of a real, headless browser, with what its console complained of.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	asked      []string // URLs of all requests
}

// openTab starts a browser, with further options; without one the test is skipped, loudly.
func openTab(t *testing.T, options ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("SKIPPED in a browser: there is no chromium on the PATH (Debian: apt-get install --no-install-recommends chromium)")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*patient)
	t.Cleanup(cancel)
	options = append(options, chromedp.ExecPath(path), chromedp.UserDataDir(profile(t)), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(patient))
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	go listen(b, chromedp.Console(ctx), func(m chromedp.ConsoleMessage) {
		b.complaints = append(b.complaints, fmt.Sprintf("%s: %s %s", m.Type, m.Text, m.URL))
	})
	go listen(b, chromedp.Events(ctx, network.RequestWillBeSent), func(e network.EventRequestWillBeSent) { b.asked = append(b.asked, e.Request.URL) })
	return b
}

// listen notes events of the browser until it ends.
func listen[E any](b *tab, events iter.Seq2[E, error], note func(E)) {
	for event, err := range events {
		if err != nil {
			return
		}
		b.mu.Lock()
		note(event)
		b.mu.Unlock()
	}
}

// heard returns the complaints and requests so far and forgets them.
func (b *tab) heard() (complaints, asked []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	complaints, asked = b.complaints, b.asked
	b.complaints, b.asked = nil, nil
	return complaints, asked
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// text is what an expression in the page is, as text.
func (b *tab) text(expression string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// waitFor polls an expression in the page.
func (b *tab) waitFor(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if b.text(expression) == "true" {
			return
		}
	}
	complaints, _ := b.heard()
	b.t.Fatalf("not within %s: %s; the page says %q, the console %q", patient, what, b.text("document.body.innerText"), complaints)
}

const (
	hostileTitle  = `"><script>window.hostile=1</script><img src=x onerror="window.hostile=2">`
	hostileTarget = `https://example.com/?a='><script>window.hostile=3</script>`
)

// The page at / of the API's address, as a person meets it.
func TestPage(t *testing.T) {
	p := shared(t)
	b := openTab(t)
	rows := make([]fields, 60)
	for i := range rows {
		rows[i] = fields{"target": fmt.Sprint("https://example.com/page/", i)}
	}
	if a := p.api("POST", "/v1/links:batch", fields{"links": rows}); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	hostile := p.create(fields{"target": hostileTarget, "title": hostileTitle, "code": "page-&é"})
	if hostile.status != http.StatusCreated {
		t.Fatalf("%d %s", hostile.status, hostile.raw)
	}
	code := p.made(fields{"target": "https://example.com/page", "title": "Plain title"})
	for range 3 {
		p.visit("/" + code)
	}
	p.eventually("the visits are counted", func() bool { return clicksOf(p, code) == 3 })

	home := "http://" + p.ports["api"] + "/"
	b.do(chromedp.Navigate(home), chromedp.WaitVisible("#key"))
	for _, address := range []string{"/v1/openapi.yaml", "/v1/openapi.json"} {
		if b.text(`!!document.querySelector('a[href="`+address+`"]')`) != "true" {
			t.Errorf("the page does not say that %s describes the API", address)
		}
		if status, body := p.get(p.ports["api"], address); status != http.StatusOK || !strings.Contains(body, "openapi") {
			t.Errorf("%s: %d", address, status)
		}
	}
	b.do(chromedp.SendKeys("#key", "wrong key"), chromedp.Click("#login button"))
	b.waitFor("a wrong key is refused", `document.getElementById('message').textContent.includes('not known') && document.querySelectorAll('#links tr').length === 0`)
	complaints, _ := b.heard()
	for _, c := range complaints {
		if !strings.Contains(c, "401") { // which the console notes
			t.Errorf("a wrong key: %s", c)
		}
	}

	b.do(chromedp.SendKeys("#key", adminKey), chromedp.Click("#login button"))
	b.waitFor("50 links are listed with their clicks", `document.querySelectorAll('#links tr').length === 50 && [...document.querySelectorAll('#links td.clicks')].every(td => /^\d+$/.test(td.textContent))`)
	if first := b.text(`[...document.querySelectorAll('#links tr')[0].cells].map(c => c.textContent).join('|')`); first != p.domain()+"/"+code+"|https://example.com/page|active|3" {
		t.Errorf("the newest link is shown as %q", first)
	}
	second := b.text(`[...document.querySelectorAll('#links tr')[1].cells].map(c => c.textContent).join('|')`)
	if want := p.domain() + "/page-&é|" + hostile.str("target") + "|active|0"; second != want {
		t.Errorf("the hostile link is shown as %q, want %q", second, want)
	}
	if title := b.text(`document.querySelectorAll('#links tr')[1].cells[1].title`); title != hostileTitle {
		t.Errorf("its title is %q", title)
	}
	if b.text(`window.hostile`) != "undefined" || b.text(`document.querySelectorAll('table script, table img').length`) != "0" {
		t.Error("the title or the target became a part of the page")
	}
	if href := b.text(`document.querySelectorAll('#links tr')[1].cells[0].querySelector('a').href`); href != hostile.str("short_url") {
		t.Errorf("its address is %s, want %s", href, hostile.str("short_url"))
	}
	b.do(chromedp.Click("#more"))
	b.waitFor("the next page is added", `document.querySelectorAll('#links tr').length > 50 && [...document.querySelectorAll('#links td.clicks')].every(td => /^\d+$/.test(td.textContent))`)
	b.do(chromedp.Reload(), chromedp.WaitVisible("#links tr"))
	b.waitFor("the key outlives a reload of the tab", `document.querySelectorAll('#links tr').length === 50`)
	b.do(chromedp.Click("#forget"), chromedp.WaitVisible("#key"))
	if b.text(`document.querySelectorAll('#links tr').length + ' ' + sessionStorage.length + ' ' + localStorage.length + ' ' + document.cookie`) != "0 0 0 " {
		t.Error("forgetting the key leaves something behind")
	}
	complaints, asked := b.heard()
	if len(complaints) > 0 {
		t.Errorf("the console complains: %q", complaints)
	}
	for _, address := range asked {
		if !strings.HasPrefix(address, home) && !strings.HasPrefix(address, "data:") || strings.Contains(address, adminKey) {
			t.Errorf("the page asked for %s", address)
		}
	}
}

// profile is a directory for the browser. It goes on writing for a moment after its end, so removing it is tried again.
func profile(t *testing.T) string {
	dir, err := os.MkdirTemp("", "hoplog-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 50 {
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	return dir
}
