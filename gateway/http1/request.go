package http1

// Method is what the redirects tell apart.
type Method uint8

// Methods. Every method that is not GET or HEAD is Other, whatever its case.
const (
	Other Method = iota
	Get
	Head
)

// Request is what a redirect needs of a request. Its slices are borrowed from the bytes it was read from. Headers that are not
// listed are checked and forgotten; of a header that is there several times the first counts, unless it says otherwise.
type Request struct {
	Method Method
	// Target is the request target as it came: origin form or absolute form for GET and HEAD.
	Target []byte
	// Host is the Host header, trimmed; empty only where HTTP/1.0 has none.
	Host []byte
	// Close: the connection ends with the answer.
	Close bool
	// Persist: a client of HTTP/1.0 asks to keep the connection, and has to be told that we do.
	Persist bool
	// Expect: the client waits for a 100 before it sends the body.
	Expect bool
	// Length is that of the body, Chunked if it is chunked.
	Length int64

	UserAgent, Referer, AcceptLanguage, SecPurpose, Purpose []byte
	// ForwardedFor and Forwarded are all lines of X-Forwarded-For and of Forwarded, in order.
	ForwardedFor, Forwarded [][]byte
}

// Chunked is the Length of a body whose end its last chunk marks.
const Chunked = -1

// Reset forgets the request, and the bytes it was read from, but keeps the memory of its lists.
func (q *Request) Reset() {
	clear(q.ForwardedFor)
	clear(q.Forwarded)
	*q = Request{ForwardedFor: q.ForwardedFor[:0], Forwarded: q.Forwarded[:0]}
}
