package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Bounds of one request.
const (
	maxBody         = 1 << 20
	maxBatchBody    = 16 << 20
	maxDrain        = 32 << 20 // of a body that is too large
	requestDeadline = 30 * time.Second
	requestIDHeader = "X-Request-Id"
	maxRequestID    = 64
)

// Keys of gin's context.
const (
	contextRequestID = "hoplog.request"
	contextCaller    = "hoplog.caller"
)

func requestIDOf(c *gin.Context) string { return c.GetString(contextRequestID) }

// callerOf returns the key that auth let through.
func callerOf(c *gin.Context) *pb.ApiKey { return c.MustGet(contextCaller).(*pb.ApiKey) }

// observe gives the request its identity and its deadline, and counts and logs it when it is answered.
func (a *api) observe(c *gin.Context) {
	began := time.Now()
	id := c.GetHeader(requestIDHeader)
	if id == "" || len(id) > maxRequestID || !isVisibleASCII(id) {
		id = uuid.NewString()
	}
	c.Set(contextRequestID, id)
	header := c.Writer.Header()
	header.Set(requestIDHeader, id)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	ctx, cancel := context.WithTimeout(c.Request.Context(), requestDeadline)
	defer cancel()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
	a.metrics.seen(c, time.Since(began))
	if a.logger.Enabled(ctx, slog.LevelDebug) {
		a.logger.Debug("request", "method", c.Request.Method, "route", c.FullPath(), "status", c.Writer.Status(),
			"duration", time.Since(began), "request", id)
	}
}

// recoverPanic answers a panic with an error of ours; the process lives on.
func (a *api) recoverPanic(c *gin.Context) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if err, is := cause.(error); is && errors.Is(err, http.ErrAbortHandler) {
			panic(cause)
		}
		a.logger.Error("panic while answering a request", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()), "request", requestIDOf(c))
		if !c.Writer.Written() {
			a.fail(c, commands.Refuse(codeInternal, "", "something went wrong in the server; its log says what"))
		}
		c.Abort()
	}()
	c.Next()
}

// auth lets a request through whose key the control log knows, and every request for what is public or not there.
func (a *api) auth(c *gin.Context) {
	if c.FullPath() == "" || a.description.public[c.FullPath()] {
		return
	}
	scheme, key, _ := strings.Cut(c.GetHeader("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || key == "" {
		a.fail(c, commands.Refuse(codeUnauthorized, "Authorization", "send the header Authorization: Bearer KEY"))
		return
	}
	caller := a.Control.Current().Key(sha256.Sum256([]byte(strings.TrimSpace(key))))
	if caller == nil {
		a.fail(c, a.missing(commands.Refuse(codeUnauthorized, "Authorization", "this API key is not known")))
		return
	}
	c.Set(contextCaller, caller)
}

// strictQuery refuses query parameters that the operation does not have, that stand twice, or that cannot be decoded.
func (a *api) strictQuery(c *gin.Context) {
	if c.Request.URL.RawQuery == "" || c.FullPath() == "" {
		return
	}
	values, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		a.fail(c, invalid("", "the query of the URL is not valid: its percent-encoding is broken, or it has a semicolon"))
		return
	}
	known := a.description.query[c.Request.Method+" "+c.FullPath()]
	for name, list := range values {
		switch {
		case !slices.Contains(known, name):
			a.fail(c, invalid(clipName(strings.ToValidUTF8(name, "\uFFFD")), "there is no such query parameter here"))
		case len(list) > 1:
			a.fail(c, invalid(name, "the query parameter "+name+" stands there twice"))
		case !utf8.ValidString(list[0]):
			a.fail(c, invalid(name, "the query parameter "+name+" is not valid UTF-8"))
		default:
			continue
		}
		return
	}
}

// badParameter answers what the generated wrapper could not bind. Its error begins with the sentence below and the name.
func (a *api) badParameter(c *gin.Context, err error, _ int) {
	for _, before := range []string{"Invalid format for parameter ", "Expected one value for "} {
		if rest, found := strings.CutPrefix(err.Error(), before); found {
			name := rest[:strings.IndexAny(rest+":", ":,")]
			if c.Param(name) != "" || name == "domain" || name == "code" || name == "key" {
				a.fail(c, notFound("there is nothing at this path"))
				return
			}
			a.fail(c, invalid(name, "the value of "+name+" is not valid"))
			return
		}
	}
	a.fail(c, invalid("", "a parameter is not valid"))
}

func notFound(detail string) *commands.Refusal {
	return commands.Refuse(commands.CodeNotFound, "", detail)
}

// readBody reads a whole body of at most limit bytes.
func readBody(c *gin.Context, limit int64) ([]byte, error) {
	size := c.Request.ContentLength
	if size > limit && c.GetHeader("Expect") != "" {
		return nil, tooLarge(limit) // the caller waits for leave to send, and gets none
	}
	var buffer bytes.Buffer
	buffer.Grow(int(min(max(size, 0), maxBody)) + bytes.MinRead)
	if _, err := buffer.ReadFrom(io.LimitReader(c.Request.Body, limit+1)); err != nil {
		return nil, invalid("", "the body could not be read to its end")
	}
	if int64(buffer.Len()) > limit {
		// Most clients look for the answer only when they have sent everything.
		_, _ = io.CopyN(io.Discard, c.Request.Body, maxDrain)
		return nil, tooLarge(limit)
	}
	return buffer.Bytes(), nil
}

func tooLarge(limit int64) *commands.Refusal {
	return commands.Refuse(commands.CodeTooLarge, "", fmt.Sprintf("the body is larger than %d bytes", limit))
}

var bodyBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// writeBody answers with v as JSON. Characters that only matter inside HTML stay readable: the type says it is none.
func writeBody(c *gin.Context, status int, contentType string, v any) {
	buffer := bodyBuffers.Get().(*bytes.Buffer)
	defer bodyBuffers.Put(buffer)
	buffer.Reset()
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(fmt.Errorf("encoding an answer: %w", err))
	}
	writeBytes(c, status, contentType, buffer.Bytes())
}

func writeBytes(c *gin.Context, status int, contentType string, body []byte) {
	header := c.Writer.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	c.Writer.WriteHeader(status)
	_, _ = c.Writer.Write(body) // fails when the caller is gone
}

func writeJSON(c *gin.Context, status int, v any) { writeBody(c, status, "application/json", v) }
