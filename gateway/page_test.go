package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// pageBrowser is one tab of a headless Chromium, spoken to by its DevTools protocol.
type pageBrowser struct {
	t      *testing.T
	conn   *websocket.Conn
	calls  int
	errors []string // what the page's console complained of
}

// openPage starts Chromium on an address; the test is skipped where there is none.
func openPage(t *testing.T, address string) *pageBrowser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no chromium on this machine: the page is not tried in a browser")
	}
	ctx, cancel := context.WithCancel(context.Background())
	process := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-allow-origins=*", "--remote-debugging-port=0", "--user-data-dir="+t.TempDir(), "about:blank")
	messages, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = process.Wait() })
	b := &pageBrowser{t: t}
	for lines := bufio.NewScanner(messages); lines.Scan(); {
		if _, endpoint, found := strings.Cut(lines.Text(), "DevTools listening on ws://"); found {
			host, _, _ := strings.Cut(endpoint, "/")
			b.attach(host)
			go func() {
				for lines.Scan() { // or it blocks on a full pipe
				}
			}()
			break
		}
	}
	if b.conn == nil {
		t.Fatal("chromium did not say where it listens")
	}
	b.call("Log.enable", nil)
	b.call("Runtime.enable", nil)
	b.call("Page.enable", nil)
	b.call("Page.navigate", map[string]any{"url": address})
	return b
}

// attach opens the DevTools of the browser's one tab.
func (b *pageBrowser) attach(host string) {
	var tabs []struct {
		Type string `json:"type"`
		URL  string `json:"webSocketDebuggerUrl"`
	}
	apiEventually(b.t, "chromium has a tab", func() bool {
		tabs = apiInto[[]struct {
			Type string `json:"type"`
			URL  string `json:"webSocketDebuggerUrl"`
		}](b.t, apiCall(b.t, "http://"+host, "GET", "/json/list", nil))
		return len(tabs) > 0 && tabs[0].Type == "page"
	})
	conn, err := websocket.Dial(tabs[0].URL, "", "http://127.0.0.1/")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	b.conn = conn
}

// call sends one command and returns its result; errors of the console that come meanwhile are kept.
func (b *pageBrowser) call(method string, params map[string]any) json.RawMessage {
	b.t.Helper()
	b.calls++
	if err := websocket.JSON.Send(b.conn, map[string]any{"id": b.calls, "method": method, "params": params}); err != nil {
		b.t.Fatal(err)
	}
	for {
		var raw []byte
		if err := websocket.Message.Receive(b.conn, &raw); err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		message := apiInto[struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Result json.RawMessage `json:"result"`
			Params struct {
				Entry struct {
					Level string `json:"level"`
					Text  string `json:"text"`
				} `json:"entry"`
			} `json:"params"`
		}](b.t, apiAnswer{body: raw})
		switch {
		case message.ID == b.calls:
			return message.Result
		case message.Params.Entry.Level == "error", message.Method == "Runtime.exceptionThrown":
			b.errors = append(b.errors, string(raw))
		}
	}
}

// eval returns the value of an expression as a string.
func (b *pageBrowser) eval(expression string) string {
	b.t.Helper()
	result := apiInto[struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
	}](b.t, apiAnswer{body: b.call("Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")"})})
	text, _ := result.Result.Value.(string)
	return text
}

func testAPIPageInBrowser(t *testing.T, r *apiRig) {
	a := r.call(t, "POST", "/v1/links", `{"target":"https://example.com/<b>bold</b>","code":"on-the-page"}`, "Key", apiTestAdmin)
	if a.status != 201 {
		t.Fatal(a)
	}
	b := openPage(t, r.server.URL+"/")
	login := func(key string) {
		apiEventually(t, "the form is there", func() bool { return b.eval(`!!document.getElementById("login")`) == "true" })
		b.eval(`(document.getElementById("key").value = "` + key + `", document.querySelector("#login button").click())`)
	}
	login("wrong")
	apiEventually(t, "a wrong key is refused", func() bool {
		return strings.Contains(b.eval(`document.getElementById("message").textContent`), "not known")
	})
	b.errors = nil // the console notes the 401
	login(apiTestAdmin)
	apiEventually(t, "the link is listed with its clicks", func() bool {
		// Without ClickHouse clicks are a dash.
		return b.eval(`[...document.querySelectorAll("#links tr td")].map(c => c.textContent).join("|")`) == apiTestDomain+"/on-the-page|https://example.com/<b>bold</b>|active|–"
	})
	if href := b.eval(`document.querySelector("#links a").href`); href != "http://"+apiTestDomain+"/on-the-page" {
		t.Errorf("the link leads to %s", href)
	}
	for _, message := range b.errors {
		if !strings.Contains(message, "503") { // the statistics' answer
			t.Errorf("the console says %s", message)
		}
	}
	b.eval(`document.getElementById("forget").click()`)
	if left := b.eval(`sessionStorage.length + " " + document.querySelectorAll("#links tr").length`); left != "0 0" {
		t.Errorf("after forgetting the key: %s", left)
	}
}
