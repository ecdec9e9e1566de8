package gateway

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events/disk"
)

// Codes of refusals that the API makes itself; the deciders' are in package commands.
const (
	codeUnauthorized         = string(ErrorCodeUnauthorized)
	codeMethodNotAllowed     = string(ErrorCodeMethodNotAllowed)
	codeOutcomeUnknown       = string(ErrorCodeOutcomeUnknown)
	codeAnalyticsUnavailable = string(ErrorCodeAnalyticsUnavailable)
	codeRateLimited          = string(ErrorCodeRateLimited)
	codeInternal             = string(ErrorCodeInternal)
)

// errorClass is what HTTP says about a stable code. retryAfter is in seconds, 0: do not try the same again.
type errorClass struct {
	status     int
	title      string
	retryAfter int
}

// errorClasses is the one table from a stable error code to its HTTP status and title.
var errorClasses = map[string]errorClass{
	commands.CodeInvalidRequest:       {http.StatusBadRequest, "The request is not valid", 0},
	commands.CodeInvalidTarget:        {http.StatusBadRequest, "The target is not valid", 0},
	commands.CodeInvalidCode:          {http.StatusBadRequest, "The code is not valid", 0},
	commands.CodeReservedCode:         {http.StatusBadRequest, "The code is reserved", 0},
	codeUnauthorized:                  {http.StatusUnauthorized, "The API key is missing or unknown", 0},
	commands.CodeForbidden:            {http.StatusForbidden, "This key may not do that", 0},
	commands.CodeDomainNotOwned:       {http.StatusForbidden, "The domain is not one of yours", 0},
	commands.CodeNotFound:             {http.StatusNotFound, "There is no such thing", 0},
	codeMethodNotAllowed:              {http.StatusMethodNotAllowed, "The method is not allowed here", 0},
	commands.CodeCodeTaken:            {http.StatusConflict, "The code is taken", 0},
	commands.CodeVersionMismatch:      {http.StatusPreconditionFailed, "It has another version", 0},
	commands.CodeTooLarge:             {http.StatusRequestEntityTooLarge, "The request is too large", 0},
	commands.CodeIdempotencyKeyReused: {http.StatusUnprocessableEntity, "The idempotency key was used for another request", 0},
	commands.CodeTargetBlocked:        {http.StatusUnprocessableEntity, "The target is blocked", 0},
	commands.CodeQuotaExceeded:        {http.StatusTooManyRequests, "The quota is used up", 3600},
	codeRateLimited:                   {http.StatusTooManyRequests, "Too many requests", 1},
	commands.CodeCommandExpired:       {http.StatusServiceUnavailable, "The command came too late", 1},
	commands.CodeUnavailable:          {http.StatusServiceUnavailable, "Not available now", 1},
	codeOutcomeUnknown:                {http.StatusServiceUnavailable, "The outcome is not known yet", 1},
	codeAnalyticsUnavailable:          {http.StatusServiceUnavailable, "Statistics are not available now", 5},
	codeInternal:                      {http.StatusInternalServerError, "An error in the server", 0},
}

// classOf returns the class of a code. A code that only a newer writer knows is a refusal without a name here.
func classOf(code string) errorClass {
	if class, known := errorClasses[code]; known {
		return class
	}
	return errorClass{http.StatusUnprocessableEntity, "The request was refused", 0}
}

// problemOf returns the RFC 9457 form of a refusal, without an instance.
func problemOf(r *commands.Refusal) Problem {
	class := classOf(r.Code)
	p := Problem{Type: "urn:hoplog:error:" + r.Code, Title: class.title, Status: class.status, Detail: r.Detail, Code: ErrorCode(r.Code)}
	if r.Field != "" {
		p.Field = &r.Field
	}
	return p
}

// problem is problemOf for any error: what is not a *commands.Refusal is an error of ours, and is logged.
func (a *api) problem(err error) Problem {
	var refusal *commands.Refusal
	if !errors.As(err, &refusal) {
		a.logger.Error("answering a request", "error", err)
		refusal = commands.Refuse(codeInternal, "", "something went wrong in the server; its log says what")
		if disk.IsDamage(err) {
			refusal = commands.Refuse(commands.CodeUnavailable, "", "what this server holds of that is damaged; its log and /readyz say where")
		}
	}
	return problemOf(refusal)
}

// fail answers an error.
func (a *api) fail(c *gin.Context, err error) {
	p := a.problem(err)
	if id := requestIDOf(c); id != "" {
		p.Instance = &id
	}
	if after := classOf(string(p.Code)).retryAfter; after > 0 {
		c.Header("Retry-After", strconv.Itoa(after))
	}
	if p.Status == http.StatusUnauthorized {
		c.Header("WWW-Authenticate", `Bearer realm="hoplog"`)
	}
	writeBody(c, p.Status, "application/problem+json", p)
	c.Abort()
}
