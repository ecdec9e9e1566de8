package app

import (
	"net/url"
	"strings"

	"github.com/hoplog/hoplog/events"
)

// linkName is what a LINK argument names; an empty domain is the default one.
type linkName struct{ domain, code string }

func (n linkName) String() string { return n.domain + "/" + n.code }

// parseLink reads a LINK argument: domain/code, a code alone, or a short URL. Percent-encoding, which no code has in it, is
// decoded.
func parseLink(text string) (linkName, error) {
	domain, code, err := splitLink(strings.TrimSpace(text))
	if err != nil {
		return linkName{}, err
	}
	n := linkName{}
	if domain != "" {
		if n.domain, err = events.NormalizeNamespace(domain); err != nil {
			return n, usagef("LINK %.100q: %w", text, err)
		}
	}
	if strings.Contains(code, "%") {
		if code, err = url.PathUnescape(code); err != nil {
			return n, usagef("LINK %.100q: %w", text, err)
		}
	}
	if n.code, err = events.NormalizeCode(code); err != nil {
		return n, usagef("LINK %.100q: %w", text, err)
	}
	return n, nil
}

func splitLink(text string) (domain, code string, err error) {
	lower := strings.ToLower(text)
	short := strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://")
	if short {
		_, text, _ = strings.Cut(text, "://")
		text, _, _ = strings.Cut(text, "#")
		text, _, _ = strings.Cut(text, "?")
	}
	domain, code, found := strings.Cut(text, "/")
	if !found && !short {
		domain, code = "", text
	}
	code = strings.TrimSuffix(code, "/")
	if code == "" || found && domain == "" {
		return "", "", usagef("LINK %.100q: want DOMAIN/CODE, CODE or a short URL", text)
	}
	return domain, code, nil
}
