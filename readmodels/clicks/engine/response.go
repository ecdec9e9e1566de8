package engine

import (
	"errors"
	"io"
	"net/http"
	"strconv"
)

// response writes one answer. Nothing is sent before bufferSize bytes are there or the query has ended, so that an error
// before that gets its proper status; a later one is told in the body, framed as ClickHouse does it.
type response struct {
	http     http.ResponseWriter
	buf      []byte
	started  bool
	tag      string // of a framed exception
	encoding func(io.Writer) io.WriteCloser
	encoder  io.WriteCloser // HTTP compression
	blocks   *blockWriter   // ClickHouse's own compression
}

const bufferSize = 64 << 10

func newResponse(w http.ResponseWriter, r *http.Request, q *request, id string) *response {
	out := &response{http: w, tag: id[:16]}
	h := w.Header()
	h.Set("X-ClickHouse-Query-Id", q.queryID)
	h.Set("X-ClickHouse-Exception-Tag", out.tag)
	h.Set("X-ClickHouse-Server-Display-Name", "hoplog")
	if q.encode {
		if name, wrap := responseEncoder(r.Header.Get("Accept-Encoding")); wrap != nil {
			h.Set("Content-Encoding", name)
			out.encoding = wrap
		}
	}
	if q.compress {
		out.blocks = newBlockWriter(encodedResponse{out}, q.method)
	}
	return out
}

func (o *response) setFormat(name string) {
	o.http.Header().Set("X-ClickHouse-Format", name)
	o.http.Header().Set("Content-Type", contentType(name))
}

// Write takes the plain output of the query.
func (o *response) Write(p []byte) (int, error) {
	if o.blocks != nil {
		return o.blocks.Write(p)
	}
	return encodedResponse{o}.Write(p)
}

// encodedResponse is what comes after ClickHouse's own compression.
type encodedResponse struct{ *response }

func (e encodedResponse) Write(p []byte) (int, error) {
	o := e.response
	if !o.started && len(o.buf)+len(p) <= bufferSize {
		o.buf = append(o.buf, p...)
		return len(p), nil
	}
	if err := o.start(); err != nil {
		return 0, err
	}
	return o.sink().Write(p)
}

func (o *response) sink() io.Writer {
	if o.encoder != nil {
		return o.encoder
	}
	return o.http
}

func (o *response) start() error {
	if o.started {
		return nil
	}
	o.started = true
	if o.encoding != nil {
		o.encoder = o.encoding(o.http)
	}
	_, err := o.sink().Write(o.buf)
	o.buf = nil
	return err
}

// finish sends what is left. An empty answer has a Content-Length of 0, by which clickhouse-go knows it.
func (o *response) finish() error {
	if o.blocks != nil {
		if err := o.blocks.Close(); err != nil {
			return err
		}
	}
	if !o.started {
		if o.encoding == nil || len(o.buf) == 0 {
			o.http.Header().Del("Content-Encoding")
			o.encoding = nil
			o.http.Header().Set("Content-Length", strconv.Itoa(len(o.buf)))
		}
		if err := o.start(); err != nil {
			return err
		}
	}
	if o.encoder != nil {
		return o.encoder.Close()
	}
	return nil
}

// fail answers with an exception: as status and text when nothing was sent, else framed behind what was.
func (o *response) fail(err error, version string) {
	e := asException(err)
	text := e.Error() + " (version " + version + ")\n"
	if !o.started {
		writeException(o.http, e, text)
		return
	}
	frame := "\r\n__exception__\r\n" + o.tag + "\r\n" + text + strconv.Itoa(len(text)) + " " + o.tag + "\r\n__exception__\r\n"
	// The client is gone if this fails, and the handler has nothing more to say.
	_, _ = o.Write([]byte(frame))
	_ = o.finish()
}

func asException(err error) *exception {
	var e *exception
	if errors.As(err, &e) {
		return e
	}
	return &exception{code: codeStdException, message: err.Error()}
}

func writeException(w http.ResponseWriter, e *exception, text string) {
	h := w.Header()
	h.Del("Content-Encoding")
	h.Set("Content-Type", "text/plain; charset=UTF-8")
	h.Set("X-ClickHouse-Exception-Code", strconv.Itoa(e.code))
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if e.code == codeAuthFailed {
		h.Set("WWW-Authenticate", `Basic realm="ClickHouse server HTTP API"`)
	}
	w.WriteHeader(e.httpStatus())
	_, _ = io.WriteString(w, text) // the client's loss if it does not read
}

func contentType(format string) string {
	switch format {
	case "TabSeparated", "TSV", "TabSeparatedRaw", "TSVRaw", "TabSeparatedWithNames", "TSVWithNames",
		"TabSeparatedWithNamesAndTypes", "TSVWithNamesAndTypes":
		return "text/tab-separated-values; charset=UTF-8"
	case "CSV", "CSVWithNames", "CSVWithNamesAndTypes":
		return "text/csv; charset=UTF-8; header=absent"
	case "JSON", "JSONCompact", "JSONStrings", "JSONCompactStrings":
		return "application/json; charset=UTF-8"
	case "JSONEachRow", "JSONCompactEachRow":
		return "application/x-ndjson; charset=UTF-8"
	case "Native", "RowBinary", "Parquet", "Arrow", "ArrowStream":
		return "application/octet-stream"
	}
	return "text/plain; charset=UTF-8"
}
