package gateway

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"

	"github.com/gin-gonic/gin"
)

// pageHTML is the page at the API's address: it asks for a key and lists that key's links. All that it shows it fetches
// from the API in the browser; the server never sees the key in a cookie.
//
//go:embed page.html
var pageHTML []byte

// pagePolicy lets the page run its own script and style, talk to its own origin, and nothing else.
var pagePolicy = "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
	"; style-src '" + inlineHash("style") + "'; script-src '" + inlineHash("script") + "'"

// inlineHash is the CSP hash source (CSP3, section 2.3.1) of the page's one element with this tag.
func inlineHash(tag string) string {
	_, rest, _ := bytes.Cut(pageHTML, []byte("<"+tag+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+tag+">"))
	sum := sha256.Sum256(text)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func servePage(c *gin.Context) {
	header := c.Writer.Header()
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Frame-Options", "DENY")
	writeBytes(c, http.StatusOK, "text/html; charset=utf-8", pageHTML)
}
