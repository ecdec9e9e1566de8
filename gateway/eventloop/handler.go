package eventloop

import (
	"errors"
	"net/netip"

	"github.com/hoplog/hoplog/gateway/http1"
)

// Handler answers requests. All of it is called by many goroutines at once, and what it is given is borrowed.
type Handler interface {
	// Respond appends the answer to a request that peer sent. With mayWait false it must not wait for anything: where it would
	// have to, it returns false and out as it was, without any other effect, and is asked again by a worker.
	Respond(out []byte, q *http1.Request, peer netip.Addr, mayWait bool) (_ []byte, ok bool)
	// Refuse appends the answer to what never became a request, by an error of http1 or one of this package's. It says that
	// the connection ends.
	Refuse(out []byte, why error) []byte
}

// Why a connection is refused or ended by the server, beside the errors of http1.
var (
	// ErrSlow: a request did not come within its time.
	ErrSlow = errors.New("eventloop: the request took too long")
	// ErrBusy: there are too many connections, or too many requests wait for a worker.
	ErrBusy = errors.New("eventloop: too busy")
)
