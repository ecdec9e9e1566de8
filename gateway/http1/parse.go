package http1

import "bytes"

// Parse reads the head at the start of b. It returns the bytes that the head takes, 0 while its end has not come. After an
// error, and while n is 0, the request holds nothing of use but Method.
func (q *Request) Parse(b []byte) (n int, err error) {
	q.Reset()
	p := parser{b: b, q: q}
	n, err = p.head()
	switch {
	case err != nil:
		return 0, err
	case n > MaxHead, n == 0 && len(b) >= MaxHead:
		return 0, ErrHeadTooLarge
	}
	return n, nil
}

// Ended reports whether the end of a head lies in b, of which the first seen bytes were looked at before: what makes it worth
// to call Parse again.
func Ended(b []byte, seen int) bool {
	return len(b) >= MaxHead || bytes.Contains(b[max(0, seen-len(headEnd)+1):], headEnd)
}

var headEnd = []byte("\r\n\r\n")

// parser is one pass over a head.
type parser struct {
	b  []byte
	at int
	q  *Request

	minor       byte
	hasHost     bool
	lengthText  []byte // nil: there is no Content-Length
	hasEncoding bool
	keepAlive   bool
}

func (p *parser) head() (int, error) {
	for p.at+1 < len(p.b) && p.b[p.at] == '\r' && p.b[p.at+1] == '\n' {
		p.at += 2 // RFC 9112, section 2.2
	}
	line, ok, err := p.line()
	if !ok || err != nil {
		return 0, err
	}
	if err := p.requestLine(line); err != nil {
		return 0, err
	}
	for {
		line, ok, err = p.line()
		if !ok || err != nil {
			return 0, err
		}
		if len(line) == 0 {
			return p.at, p.finish()
		}
		if err := p.field(line); err != nil {
			return 0, err
		}
	}
}

// line takes the next line off. False: its end has not come. The only control byte in it may be the tab.
func (p *parser) line() (line []byte, ok bool, err error) {
	rest := p.b[p.at:]
	end := 0
	for {
		end += plain(rest[end:])
		if end == len(rest) {
			return nil, false, nil
		}
		if rest[end] != '\t' {
			break
		}
		end++
	}
	if rest[end] != '\r' {
		return nil, false, ErrMalformed
	}
	if end+1 == len(rest) {
		return nil, false, nil
	}
	if rest[end+1] != '\n' {
		return nil, false, ErrMalformed
	}
	p.at += end + 2
	return rest[:end], true, nil
}

// requestLine reads method, target and version, one space between them.
func (p *parser) requestLine(line []byte) error {
	space := bytes.IndexByte(line, ' ')
	if space < 1 || !isToken(line[:space]) {
		return ErrMalformed
	}
	p.q.Method = methodOf(line[:space])
	rest := line[space+1:]
	space = bytes.IndexByte(rest, ' ')
	if space < 1 || bytes.IndexByte(rest, '\t') >= 0 {
		return ErrMalformed
	}
	p.q.Target = rest[:space]
	version := rest[space+1:]
	if len(version) != len("HTTP/1.1") || string(version[:len("HTTP/1.")]) != "HTTP/1." {
		return ErrMalformed
	}
	p.minor = version[len(version)-1] - '0'
	if p.minor > 9 || p.q.Method != Other && !hasForm(p.q.Target) {
		return ErrMalformed
	}
	return nil
}

func methodOf(method []byte) Method {
	switch string(method) {
	case "GET":
		return Get
	case "HEAD":
		return Head
	}
	return Other
}

// hasForm reports whether a target has origin or absolute form, which are those of GET and HEAD.
func hasForm(target []byte) bool {
	return target[0] == '/' || bytes.Contains(target, []byte("://"))
}

// field reads one header line.
func (p *parser) field(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon < 1 || !isToken(line[:colon]) { // a folded line begins with a space, which no name has
		return ErrMalformed
	}
	return p.header(line[:colon], trim(line[colon+1:]))
}

// header keeps the value of a header that is needed. Most names are told by their length alone.
func (p *parser) header(name, value []byte) error {
	q := p.q
	switch len(name) {
	case len("host"):
		if is(name, "host") {
			if p.hasHost {
				return ErrMalformed
			}
			p.hasHost, q.Host = true, value
		}
	case len("expect"):
		if is(name, "expect") {
			q.Expect = q.Expect || is(value, "100-continue")
		}
	case len("referer"):
		if is(name, "referer") {
			keep(&q.Referer, value)
		} else if is(name, "purpose") {
			keep(&q.Purpose, value)
		}
	case len("forwarded"):
		if is(name, "forwarded") {
			q.Forwarded = append(q.Forwarded, value)
		}
	case len("user-agent"):
		if is(name, "user-agent") {
			keep(&q.UserAgent, value)
		} else if is(name, "connection") {
			p.connection(value)
		}
	case len("sec-purpose"):
		if is(name, "sec-purpose") {
			keep(&q.SecPurpose, value)
		}
	case len("content-length"):
		if is(name, "content-length") {
			return p.length(value)
		}
	case len("x-forwarded-for"):
		if is(name, "x-forwarded-for") {
			q.ForwardedFor = append(q.ForwardedFor, value)
		} else if is(name, "accept-language") {
			keep(&q.AcceptLanguage, value)
		}
	case len("transfer-encoding"):
		if is(name, "transfer-encoding") {
			return p.encoding(value)
		}
	}
	return nil
}

// keep sets a header that was not there before.
func keep(to *[]byte, value []byte) {
	if *to == nil {
		*to = value
	}
}

func (p *parser) connection(value []byte) {
	for more := true; more; {
		var option []byte
		option, value, more = bytes.Cut(value, []byte(","))
		option = trim(option)
		p.q.Close = p.q.Close || is(option, "close")
		p.keepAlive = p.keepAlive || is(option, "keep-alive")
	}
}

// length reads Content-Length. Repeating the same length is harmless (RFC 9110, section 8.6).
func (p *parser) length(value []byte) error {
	n, ok := decimal(value)
	if !ok || p.lengthText != nil && !bytes.Equal(p.lengthText, value) {
		return ErrMalformed
	}
	p.lengthText, p.q.Length = value, n
	return nil
}

func (p *parser) encoding(value []byte) error {
	if p.hasEncoding || !is(value, "chunked") {
		return ErrMalformed
	}
	p.hasEncoding = true
	return nil
}

// finish judges the head as a whole.
func (p *parser) finish() error {
	q := p.q
	if p.minor == 0 {
		q.Persist = p.keepAlive && !q.Close
		q.Close = !q.Persist
	} else if len(q.Host) == 0 {
		return ErrMalformed
	}
	if p.hasEncoding {
		if p.lengthText != nil || p.minor == 0 {
			return ErrMalformed
		}
		q.Length = Chunked
	}
	return nil
}
