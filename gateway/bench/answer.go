package bench

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// answer is one HTTP/1.1 response. Its body shares memory with the reader's buffers.
type answer struct {
	status int
	body   []byte
	close  bool // the server ends the connection after it
}

var (
	errAnswer  = errors.New("not an HTTP/1.1 answer with a length")
	headersEnd = []byte("\r\n\r\n")
)

// parseAnswer reads the answer that b begins with; size is what it takes of b, 0 while b does not hold all of it. The body
// of a chunked answer is put together in scratch, which may grow.
func parseAnswer(b []byte, scratch *[]byte) (a answer, size int, err error) {
	end := bytes.Index(b, headersEnd)
	if end < 0 {
		return a, 0, nil
	}
	head, rest := b[:end], b[end+len(headersEnd):]
	if a.status, err = parseStatus(head); err != nil {
		return a, 0, err
	}
	length, chunked := -1, false
	for _, more := nextLine(head); len(more) > 0; {
		var line []byte
		line, more = nextLine(more)
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case is(name, "content-length"):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return a, 0, fmt.Errorf("%w: length %q", errAnswer, value)
			}
		case is(name, "transfer-encoding"):
			chunked = is(value, "chunked")
		case is(name, "connection"):
			a.close = is(value, "close")
		}
	}
	used := end + len(headersEnd)
	switch {
	case chunked:
		n := 0
		if a.body, n, err = parseChunks(rest, (*scratch)[:0]); err != nil || n == 0 {
			return a, 0, err
		}
		*scratch = a.body
		return a, used + n, nil
	case length < 0:
		return a, 0, fmt.Errorf("%w: status %d", errAnswer, a.status)
	case len(rest) < length:
		return a, 0, nil
	}
	a.body = rest[:length]
	return a, used + length, nil
}

func parseStatus(head []byte) (int, error) {
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) || len(head) < 12 {
		return 0, fmt.Errorf("%w: %.40q", errAnswer, head)
	}
	status, err := strconv.Atoi(string(head[9:12]))
	if err != nil {
		return 0, fmt.Errorf("%w: %.40q", errAnswer, head)
	}
	return status, nil
}

func nextLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte("\r\n"))
	return line, rest
}

// is compares a header's name or value with one in lower case.
func is(b []byte, lower string) bool {
	return len(b) == len(lower) && bytes.EqualFold(b, []byte(lower))
}

// parseChunks appends the chunks at the beginning of b to dst (RFC 9112, 7.1); size is 0 while the last is not there.
// Trailers are not expected.
func parseChunks(b, dst []byte) (body []byte, size int, err error) {
	for at := 0; ; {
		line, rest, found := bytes.Cut(b[at:], []byte("\r\n"))
		if !found {
			return dst, 0, nil
		}
		n, err := strconv.ParseUint(string(line), 16, 31)
		if err != nil {
			return dst, 0, fmt.Errorf("%w: chunk of length %.20q", errAnswer, line)
		}
		if len(rest) < int(n)+2 {
			return dst, 0, nil
		}
		dst = append(dst, rest[:n]...)
		at += len(line) + 2 + int(n) + 2
		if n == 0 {
			return dst, at, nil
		}
	}
}
