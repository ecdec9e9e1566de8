package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/hoplog/hoplog/gateway/eventloop"
	"github.com/hoplog/hoplog/gateway/http1"
)

// redirectSecond is what all answers of a second share, so that most are three copies.
type redirectSecond struct {
	unix int64
	date []byte // a header line
	// dateText is the value of that header.
	dateText string
	found    []byte // a redirect with 302 that no cache keeps, up to its Location
}

// redirectNeverLines are those of a redirect that no cache keeps.
const redirectNeverLines = "Cache-Control: " + redirectNever + "\r\nPragma: no-cache\r\nExpires: 0\r\n"

// thisSecond returns what answers at a time in microseconds share.
func (r *Redirect) thisSecond(nowUS int64) *redirectSecond {
	unix := nowUS / 1e6
	if s := r.second.Load(); s != nil && s.unix == unix {
		return s
	}
	s := &redirectSecond{unix: unix}
	s.dateText = time.Unix(unix, 0).UTC().Format(http.TimeFormat)
	s.date = []byte("Date: " + s.dateText + "\r\n")
	s.found = append(redirectHead(nil, http.StatusFound), s.date...)
	s.found = append(s.found, redirectNeverLines+"Location: "...)
	r.second.Store(s)
	return s
}

// redirectHead begins a redirect: status line and length.
func redirectHead(out []byte, status int) []byte {
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(status)...)
	return append(out, "\r\nContent-Length: 0\r\n"...)
}

// Respond implements eventloop.Handler.
func (r *Redirect) Respond(out []byte, q *http1.Request, peer netip.Addr, mayWait bool) (_ []byte, done bool) {
	v := r.visits.Get().(*redirectVisit)
	v.request, v.peer, v.mayWait = q, peer, mayWait
	if done = r.answerSafely(v); done {
		out = r.thisSecond(v.nowUS).appendReply(out, q, &v.reply)
	}
	v.request, v.lists, v.link, v.reply = nil, nil, nil, redirectReply{}
	r.visits.Put(v)
	return out, done
}

// errRedirectBug: a visit panicked.
var errRedirectBug = errors.New("a mistake of ours")

// answerSafely turns a bug into one bad answer instead of a dead node.
func (r *Redirect) answerSafely(v *redirectVisit) (done bool) {
	defer func() {
		if p := recover(); p != nil {
			r.complain(fmt.Errorf("%w: %v\n%s", errRedirectBug, p, debug.Stack()))
			v.refuse(http.StatusInternalServerError)
			done = true
		}
	}()
	return r.answer(v)
}

// Refuse implements eventloop.Handler. Of what never became a request no language is known.
func (r *Redirect) Refuse(out []byte, why error) []byte {
	reply := redirectReply{page: redirectRefusals[redirectStatusOfRefusal(why)][redirectEnglish]}
	return r.thisSecond(r.deps.Clock()).appendReply(out, &http1.Request{Close: true}, &reply)
}

// redirectStatusOfRefusal is the status for what never became a request, by who says so.
func redirectStatusOfRefusal(why error) int {
	switch {
	case errors.Is(why, http1.ErrHeadTooLarge):
		return http.StatusRequestHeaderFieldsTooLarge
	case errors.Is(why, http1.ErrBodyTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(why, eventloop.ErrSlow):
		return http.StatusRequestTimeout
	case errors.Is(why, eventloop.ErrBusy):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// appendReply appends a reply in HTTP/1.1.
func (s *redirectSecond) appendReply(out []byte, q *http1.Request, a *redirectReply) []byte {
	if a.page != nil {
		out = append(out, a.page.head...)
		out = append(out, s.date...)
		out = appendConnection(out, q)
		if q.Method != http1.Head {
			out = append(out, a.page.body...)
		}
		return out
	}
	if a.status == http.StatusFound && a.fresh <= 0 {
		out = append(out, s.found...)
	} else {
		out = s.appendHead(out, a)
	}
	out = append(out, a.location...)
	out = append(out, "\r\n"...)
	return appendConnection(out, q)
}

// appendHead appends a redirect up to its Location.
func (s *redirectSecond) appendHead(out []byte, a *redirectReply) []byte {
	out = append(redirectHead(out, a.status), s.date...)
	if a.fresh > 0 {
		out = a.appendCacheControl(append(out, "Cache-Control: "...))
		return append(out, "\r\nLocation: "...)
	}
	return append(out, redirectNeverLines+"Location: "...)
}

// appendConnection ends a head, with what a client does not know about the connection.
func appendConnection(out []byte, q *http1.Request) []byte {
	switch {
	case q.Close:
		return append(out, "Connection: close\r\n\r\n"...)
	case q.Persist:
		return append(out, "Connection: keep-alive\r\n\r\n"...)
	}
	return append(out, "\r\n"...)
}
