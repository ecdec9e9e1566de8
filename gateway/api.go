package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/readmodels/links"
	"github.com/hoplog/hoplog/schemas/pb"
)

// ControlReader is the control read model.
type ControlReader interface {
	// Current returns the latest state; nil before the first envelope.
	Current() *commands.Control
}

// LinkReader is the read model of links and of requests. A link, entry or outcome that is not there is links.ErrNotFound.
type LinkReader interface {
	// Get returns the link, or its tombstone.
	Get(namespace, code string) (*pb.Link, error)
	// At returns the link as it was at a version.
	At(namespace, code string, version uint64) (*pb.Link, error)
	// History returns all entries of a link, oldest first.
	History(namespace, code string) ([]*pb.HistoryEntry, error)
	// List returns a page of an owner's links as of nowUS (microseconds); links.ErrBadCursor for a cursor of another query.
	List(q links.Query, nowUS int64) (*links.Page, error)
	// Request returns what is stored under an owner's request key, the answer first; nothing is no error.
	Request(owner, key string) ([]links.Request, error)
	// RequestRows returns what is stored of a batch's rows, in row order.
	RequestRows(owner, batchKey string) ([]links.Request, error)
}

// PositionWaiter is a read model that can be waited for.
type PositionWaiter interface {
	// WaitFor returns when what stands at p can be read, with ctx's error when it is done, or with the reason why it never
	// will be.
	WaitFor(ctx context.Context, p events.Position) error
}

// APIDeps is what the command API is made of. Clicks may be nil, and ClicksAsOf with it: then nothing is counted here.
type APIDeps struct {
	Logger    *slog.Logger
	Metrics   prometheus.Registerer
	Control   ControlReader
	Links     LinkReader
	Submitter *Submitter
	// ControlSubmitter takes writes to the control plane; nil: there are none here.
	ControlSubmitter *ControlSubmitter

	Clicks     ClickStats
	ClicksAsOf ClickFreshness

	// What reads wait for when they name a position.
	ControlAt, LinksAt PositionWaiter
	// Freshness of the links.
	Freshness *Freshness
	// Writable says why no write is taken now; nil: they always are.
	Writable func() error
	// Complete says why what is not found may exist; nil: always complete.
	Complete Complete
	// Propagation is the time within which the last cache follows a change, as it is promised to who makes one; default 1 s.
	Propagation time.Duration
	// Now is the clock that commands carry and statuses are shown by.
	Now func() time.Time
}

// api answers the operations of schemas/openapi.yaml; ServerInterface is generated from it.
type api struct {
	APIDeps
	logger      *slog.Logger
	metrics     *apiMetrics
	description *description
}

var _ ServerInterface = (*api)(nil)

// NewAPI returns the handler of the command API, of its description and of the page at /. An error means that the embedded
// description cannot be read or a metric is registered already.
func NewAPI(deps APIDeps) (http.Handler, error) {
	d, err := theDescription()
	if err != nil {
		return nil, err
	}
	m, err := newAPIMetrics(deps.Metrics)
	if err != nil {
		return nil, err
	}
	a := &api{APIDeps: deps, logger: deps.Logger, metrics: m, description: d}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	// Codes are matched as they were encoded, so that an encoded slash does not end them; handlers decode.
	engine.UseEscapedPath = true
	engine.UnescapePathValues = false
	engine.Use(a.observe, a.recoverPanic, a.auth, a.strictQuery)
	engine.NoRoute(func(c *gin.Context) {
		a.fail(c, notFound("there is nothing at this path; /v1/openapi.yaml says what is"))
	})
	engine.NoMethod(func(c *gin.Context) {
		a.fail(c, commands.Refuse(codeMethodNotAllowed, "", "this path does not have the method "+clipName(c.Request.Method)))
	})
	RegisterHandlersWithOptions(engine, a, GinServerOptions{ErrorHandler: a.badParameter})
	engine.GET("/", servePage)
	for _, route := range engine.Routes() { // the server lets no body through in answer to HEAD
		if route.Method == http.MethodGet {
			engine.HEAD(route.Path, route.HandlerFunc)
		}
	}
	return engine, nil
}

// Bounds of the API's connections. A batch waits longest for its answer.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 60 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// NewAPIServer returns a server with the bounds that the API needs; the caller gives it a listener.
func NewAPIServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// isLoopback tells a namespace of this machine.
func isLoopback(namespace string) bool {
	host := namespace
	if name, _, err := net.SplitHostPort(namespace); err == nil {
		host = name
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}
