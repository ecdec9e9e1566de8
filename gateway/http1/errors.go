package http1

import "errors"

// What a request is refused for. After any of them where the next request begins is not known, or not worth knowing: the
// connection is answered once and closed.
var (
	// ErrMalformed: not a request of RFC 9112, or one that two readers could understand differently (400).
	ErrMalformed = errors.New("http1: malformed request")
	// ErrHeadTooLarge: request line and headers are longer than MaxHead (431).
	ErrHeadTooLarge = errors.New("http1: head too large")
	// ErrBodyTooLarge: the body is longer than MaxBody (413).
	ErrBodyTooLarge = errors.New("http1: body too large")
)

const (
	// MaxHead bounds the bytes of request line and headers together, empty lines in front included.
	MaxHead = 16 << 10
	// MaxBody bounds the bytes of a body, its framing included: it is read only to find the next request.
	MaxBody = 64 << 10
)
