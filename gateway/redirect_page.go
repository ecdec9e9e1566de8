package gateway

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html"
	"net/http"
	"strconv"
)

// The pages for visitors: no script, nothing from elsewhere, and made beforehand in every language, but for the preview.

// redirectStyle is the pages' style: two contrasts of text (4.5:1 at least) in light and in dark, one column from 320 pixels on.
//
//go:embed redirect_page.css
var redirectStyle string

// redirectPagePolicy allows a page its own style, by its hash, and the icon that browsers ask for by themselves.
var redirectPagePolicy = func() string {
	sum := sha256.Sum256([]byte(redirectStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// redirectTranslations is a page in every language.
type redirectTranslations [redirectLanguages]*redirectPage

// redirectText is what a person reads on a page.
type redirectText struct{ title, says string }

type redirectTexts [redirectLanguages]redirectText

// redirectRefusals holds the page of every status that a visit is refused with.
var redirectRefusals = func() map[int]*redirectTranslations {
	pages := make(map[int]*redirectTranslations, len(redirectSays))
	for status, texts := range redirectSays {
		switch status {
		case http.StatusMethodNotAllowed:
			pages[status] = newRedirectRefusal(status, texts, [2]string{"Allow", "GET, HEAD"})
		case http.StatusServiceUnavailable:
			pages[status] = newRedirectRefusal(status, texts, redirectRetryAfter(1))
		default:
			pages[status] = newRedirectRefusal(status, texts)
		}
	}
	return pages
}()

// The pages of 410 say which of its reasons it is.
var (
	redirectExpired  = newRedirectRefusal(http.StatusGone, redirectSaysExpired)
	redirectDisabled = newRedirectRefusal(http.StatusGone, redirectSaysDisabled)
)

// redirectRetryAfter is the header that says in how many seconds to try again.
func redirectRetryAfter(seconds int) [2]string {
	return [2]string{"Retry-After", strconv.Itoa(seconds)}
}

func newRedirectRefusal(status int, texts redirectTexts, more ...[2]string) *redirectTranslations {
	pages := &redirectTranslations{}
	for language, text := range texts {
		title := html.EscapeString(text.title)
		pages[language] = redirectHTML(redirectLanguage(language), status, title, title, "<p>"+html.EscapeString(text.says)+"</p>", more...)
	}
	return pages
}

// redirectHTML makes a page that no cache keeps. Title, heading and body are HTML.
func redirectHTML(language redirectLanguage, status int, title, heading, body string, more ...[2]string) *redirectPage {
	tag := redirectLanguageTags[language]
	text := "<!doctype html>\n<html lang=\"" + tag + "\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">" +
		"<meta name=\"robots\" content=\"noindex\"><title>" + title + "</title><style>" + redirectStyle + "</style></head>\n" +
		"<body><main><h1>" + heading + "</h1>" + body + "</main></body></html>\n"
	header := append([][2]string{{"Cache-Control", redirectNever}, {"Pragma", "no-cache"}, {"Expires", "0"}, {"Content-Type", "text/html; charset=utf-8"},
		{"Content-Language", tag}, {"Vary", "Accept-Language"}, {"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"},
		{"Content-Security-Policy", redirectPagePolicy}}, more...)
	return newRedirectPage(status, []byte(text), header...)
}
