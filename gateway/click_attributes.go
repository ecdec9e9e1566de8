package gateway

import (
	"bytes"
	"net/netip"
	"slices"
	"unicode/utf8"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// clickMaxUTM is the longest campaign value kept, in bytes.
const clickMaxUTM = 256

// clickUTMPrefix is what the names of campaign parameters begin with.
var clickUTMPrefix = []byte("utm_")

// clickUsefulQuery returns the query if anything in it is kept of a click, else nil.
func clickUsefulQuery(query []byte) []byte {
	if len(query) == 0 || !bytes.Contains(query, clickUTMPrefix) {
		return nil
	}
	return query
}

// clickReferrerHost returns the host of a Referer header in lower case, without user info and port; empty when the header
// is not a web address. It changes referrer in place and returns a part of it.
func clickReferrerHost(referrer []byte) []byte {
	scheme, rest, found := bytes.Cut(referrer, []byte("://"))
	if !found || !clickIsWebScheme(scheme) {
		return nil
	}
	if end := slices.IndexFunc(rest, clickEndsHost); end >= 0 {
		rest = rest[:end]
	} else if len(referrer) >= clickMaxReferrer {
		return nil // the host itself was cut
	}
	if at := bytes.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	host := clickWithoutPort(rest)
	if len(host) > 253 {
		return nil
	}
	for i, c := range host {
		switch {
		case 'A' <= c && c <= 'Z':
			host[i] = c + 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '.', c == '-', c == '_', c == ':', c == '[', c == ']':
		default:
			return nil
		}
	}
	return host
}

func clickEndsHost(c byte) bool { return c == '/' || c == '?' || c == '#' }

func clickIsWebScheme(scheme []byte) bool {
	return bytes.EqualFold(scheme, []byte("https")) || bytes.EqualFold(scheme, []byte("http")) ||
		bytes.EqualFold(scheme, []byte("android-app"))
}

func clickWithoutPort(authority []byte) []byte {
	if colon := bytes.LastIndexByte(authority, ':'); colon >= 0 && bytes.IndexByte(authority[colon:], ']') < 0 {
		return authority[:colon]
	}
	return authority
}

// clickReadUTM fills the click's campaign fields from the visitor's raw query; the first value of a name counts. It
// decodes the values in place, so the fields share the query's memory.
func clickReadUTM(to *pb.Click, query []byte) {
	for len(query) > 0 {
		var parameter []byte
		parameter, query, _ = bytes.Cut(query, []byte("&"))
		name, value, _ := bytes.Cut(parameter, []byte("="))
		if field := clickUTMField(to, name); field != nil && *field == "" {
			*field = clickText(clickFormDecode(value), clickMaxUTM)
		}
	}
}

func clickUTMField(to *pb.Click, name []byte) *string {
	switch string(name) {
	case "utm_source":
		return &to.UtmSource
	case "utm_medium":
		return &to.UtmMedium
	case "utm_campaign":
		return &to.UtmCampaign
	case "utm_term":
		return &to.UtmTerm
	case "utm_content":
		return &to.UtmContent
	}
	return nil
}

// clickFormDecode undoes the encoding of forms (application/x-www-form-urlencoded) in place. A broken escape stays as
// typed.
func clickFormDecode(value []byte) []byte {
	out := value[:0]
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '+':
			c = ' '
		case c == '%' && i+2 < len(value):
			hi, lo := events.Unhex(value[i+1]), events.Unhex(value[i+2])
			if hi < 16 && lo < 16 {
				c = hi<<4 | lo
				i += 2
			}
		}
		out = append(out, c)
	}
	return out
}

// clickText makes a string of at most that many bytes out of what a visitor sent: valid UTF-8 without control characters,
// which become '?'. It changes text in place and shares its memory.
func clickText(text []byte, most int) string {
	if len(text) > most {
		end := most
		for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r < ' ' || r == 0x7F || r == utf8.RuneError && size <= 1 {
			text[i] = '?'
		}
		i += size
	}
	return clickView(text)
}

// clickTruncate returns what is kept of an address: 4 bytes of its /24 or 16 bytes of its /48 network, in
// to's memory.
func clickTruncate(address netip.Addr, to []byte) []byte {
	switch {
	case address.Is4():
		full := address.As4()
		return append(to[:0], full[0], full[1], full[2], 0)
	case address.Is6():
		full := address.As16()
		clear(full[6:])
		return append(to[:0], full[:]...)
	}
	return to[:0]
}
