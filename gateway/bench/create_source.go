package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/hoplog/hoplog/gateway/client"
)

// linkSource asks for links that nobody asked for before, one or a batch per request, each request with a key of its own.
type linkSource struct {
	head    []byte // of every request, up to the key
	run     string // part of the keys
	batch   int    // links per request; 1: not as a batch
	next    int    // number of the next link
	first   []int  // per connection: number of the first link it asked for last
	answers int
	body    []byte
	sample  []client.Link
	right   int // links that were answered as created
}

const (
	// sampleEvery is how many links lie between two that are kept to be looked at later.
	sampleEvery = 500
	maxSample   = 400
)

func newLinkSource(t *target, batch int) *linkSource {
	path := "/v1/links"
	if batch > 1 {
		path = "/v1/links:batch"
	}
	return &linkSource{run: randomKey(), batch: batch,
		head: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nIdempotency-Key: ", path, t.api, t.key)}
}

// targetOf is what link n points to.
func targetOf(n int) string { return string(appendTarget(nil, n)) }

func appendTarget(dst []byte, n int) []byte {
	dst = append(dst, "https://example.com/landing/"...)
	dst = strconv.AppendInt(dst, int64(n), 10)
	dst = append(dst, "?utm_source=bench&id="...)
	return strconv.AppendInt(dst, int64(n), 10)
}

func (s *linkSource) request(dst []byte, connection int) []byte {
	for len(s.first) <= connection {
		s.first = append(s.first, 0)
	}
	s.first[connection] = s.next
	s.body = s.appendBody(s.body[:0])
	dst = append(dst, s.head...)
	dst = append(dst, s.run...)
	dst = append(dst, '-')
	dst = strconv.AppendInt(dst, int64(s.next), 10)
	dst = append(dst, "\r\nContent-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(s.body)), 10)
	dst = append(dst, "\r\n\r\n"...)
	s.next += s.batch
	return append(dst, s.body...)
}

func (s *linkSource) appendBody(dst []byte) []byte {
	if s.batch == 1 {
		return appendLink(dst, s.next)
	}
	dst = append(dst, `{"links":[`...)
	for i := range s.batch {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendLink(dst, s.next+i)
	}
	return append(dst, `]}`...)
}

func appendLink(dst []byte, n int) []byte {
	dst = append(dst, `{"target":"`...)
	dst = appendTarget(dst, n)
	return append(dst, `"}`...)
}

// createdRow is in the answer to a batch once for each link that was created; the status of a link is a word.
var createdRow = []byte(`"status":201`)

func (s *linkSource) answered(connection, status int, body []byte) (right, wrong int) {
	switch {
	case s.batch == 1 && status == http.StatusCreated:
		right = 1
	case s.batch > 1 && status == http.StatusOK:
		right = bytes.Count(body, createdRow)
	}
	s.right += right
	s.answers++
	if every := max(1, sampleEvery/s.batch); right == s.batch && s.answers%every == 0 && len(s.sample) < maxSample {
		s.keep(connection, body)
	}
	return right, s.batch - right
}

// keep decodes the first link of an answer, for verify.
func (s *linkSource) keep(connection int, body []byte) {
	var link client.Link
	var batch client.BatchResults
	var err error
	if s.batch == 1 {
		err = json.Unmarshal(body, &link)
	} else if err = json.Unmarshal(body, &batch); err == nil && len(batch.Results) > 0 && batch.Results[0].Link != nil {
		link = *batch.Results[0].Link
	}
	// What cannot be decoded has no code, and is a problem when it is looked up.
	if link.Target = targetOf(s.first[connection]); err != nil {
		link.Code = ""
	}
	s.sample = append(s.sample, link)
}
