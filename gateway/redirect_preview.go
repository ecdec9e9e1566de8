package gateway

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/idna"

	"github.com/hoplog/hoplog/commands"
)

// redirectPreview shows where a link leads, before anybody goes there. Who goes on does so by the link itself, so that its rules
// hold and the click counts. The host stands by itself and first, as an address can be long and full of other hosts.
func redirectPreview(language redirectLanguage, code []byte, target string, expiresUS int64) *redirectPage {
	say := &redirectPreviewSays[language]
	name := html.EscapeString(string(code))
	var b strings.Builder
	b.WriteString("<p>" + say.leads + "</p><p class=\"host\">" + redirectHostHTML(commands.TargetHost(target)))
	b.WriteString("</p><p><a rel=\"nofollow\" href=\"" + html.EscapeString("/"+url.PathEscape(string(code))) + "\">" + say.goes + "</a></p><p class=\"note\">" + say.whole)
	b.WriteString("<br><bdi>" + html.EscapeString(target) + "</bdi></p>")
	if expiresUS != 0 {
		at := time.UnixMicro(expiresUS).UTC()
		b.WriteString("<p class=\"note\">" + say.until + " <time datetime=\"" + at.Format(time.RFC3339) + "\">" + at.Format(say.layout) + "</time></p>")
	}
	return redirectHTML(language, http.StatusOK, say.title+" "+name, say.title+" <bdi>"+name+"</bdi>", b.String())
}

// redirectHostHTML shows a target's host. What an A-label stands for is shown beside it and never instead of it, and only if
// no label of it mixes scripts, as one letter of another script makes a different name of the same look.
func redirectHostHTML(host string) string {
	shown := html.EscapeString(host)
	if !strings.Contains(host, "xn--") {
		return shown
	}
	name, port, _ := strings.Cut(host, ":")
	readable, err := idna.Display.ToUnicode(name)
	if err != nil || readable == name {
		return shown
	}
	for label := range strings.SplitSeq(readable, ".") {
		if redirectMixesScripts(label) {
			return shown
		}
	}
	if port != "" {
		readable += ":" + port
	}
	return "<bdi>" + html.EscapeString(readable) + "</bdi> (" + shown + ")"
}

// redirectMixesScripts reports whether a label has letters of more than one script. Those that Chinese, Japanese and Korean
// are written in together count as one (UTS #39, section 5.1).
func redirectMixesScripts(label string) bool {
	var script *unicode.RangeTable
	for _, r := range label {
		switch {
		case unicode.In(r, unicode.Common, unicode.Inherited):
		case script == nil:
			script = redirectScriptOf(r)
		case !unicode.Is(script, r) && (!isRedirectEastAsian(r) || script != unicode.Han):
			return true
		}
	}
	return false
}

func isRedirectEastAsian(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo)
}

// redirectScriptOf returns the script of a letter, Han for all that go with it. What has none is a script of its own.
func redirectScriptOf(r rune) *unicode.RangeTable {
	if isRedirectEastAsian(r) {
		return unicode.Han
	}
	for _, table := range unicode.Scripts {
		if unicode.Is(table, r) {
			return table
		}
	}
	return &unicode.RangeTable{}
}
