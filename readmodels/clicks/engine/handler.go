package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// handler serves ClickHouse's HTTP interface.
type handler struct {
	db  *database
	opt Options
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case checkOrigin(r, h.opt.Addr) != nil:
		h.refuse(w, errForbidden)
	case r.URL.Path == "/ping" || r.URL.Path == "/replicas_status":
		writeOk(w)
	case r.URL.Path != "/":
		h.refuse(w, &exception{code: codeBadArguments, status: http.StatusNotFound, message: "There is no handle " + r.URL.Path})
	case r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodPost:
		h.serveQuery(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		h.refuse(w, &exception{code: codeBadArguments, status: http.StatusMethodNotAllowed, message: "method is not allowed"})
	}
}

func writeOk(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	_, _ = io.WriteString(w, "Ok.\n") // the client's loss if it does not read
}

func (h *handler) refuse(w http.ResponseWriter, err error) {
	e := asException(err)
	writeException(w, e, e.Error()+" (version "+h.db.version+")\n")
}

func (h *handler) serveQuery(w http.ResponseWriter, r *http.Request) {
	if err := h.opt.authorize(r); err != nil {
		h.refuse(w, err)
		return
	}
	q, err := parseRequest(r)
	if err != nil {
		h.refuse(w, err)
		return
	}
	id := randomID()
	if q.queryID == "" {
		q.queryID = id
	}
	out := newResponse(w, r, q, id)
	in, err := h.readInput(r, q)
	if err == nil && in.st.kind == kindEmpty {
		writeOk(w)
		return
	}
	if err == nil {
		defer in.close()
		err = h.run(r.Context(), q, in, id, out)
	}
	if err == nil {
		err = out.finish()
	}
	if err != nil {
		out.fail(err, h.db.version)
	}
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// input is the statement of a request and, for an INSERT, the file with its data.
type input struct {
	st   statement
	text []byte
	file io.Closer
}

func (in *input) close() {
	if in.file != nil {
		_ = in.file.Close() // holds nothing that outlives the query
	}
}

// readInput: as in ClickHouse, a query in the URL and one in the body are joined by a line end, and what follows the
// statement of an INSERT is its data.
func (h *handler) readInput(r *http.Request, q *request) (*input, error) {
	body, err := requestBody(r, q.decompress, h.opt.MaxBody)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	text := []byte(q.query)
	st, err := parseStatement(text)
	if err != nil {
		return nil, err
	}
	if st.kind == kindInsert {
		return newInsert(st, text, body)
	}
	var rest bytes.Buffer
	if len(text) > 0 {
		rest.Write(append(text, '\n'))
	}
	if _, err := rest.ReadFrom(body); err != nil {
		return nil, readError(err)
	}
	text = rest.Bytes()
	if st, err = parseStatement(text); err != nil {
		return nil, err
	}
	if st.kind == kindInsert {
		return newInsert(st, text, bytes.NewReader(nil))
	}
	return &input{st: st, text: text}, nil
}

// newInsert puts the data of an INSERT, the rest of text and then body, where the engine can read it.
func newInsert(st statement, text []byte, body io.Reader) (*input, error) {
	file, path, err := memoryFile()
	if err != nil {
		return nil, err
	}
	in := &input{st: st, text: st.withInfile(text, path), file: file}
	if _, err := file.Write(text[st.data:]); err != nil {
		in.close()
		return nil, fmt.Errorf("keeping the data of an insert: %w", err)
	}
	if _, err := io.Copy(file, body); err != nil {
		in.close()
		return nil, readError(err)
	}
	return in, nil
}

func (h *handler) run(ctx context.Context, q *request, in *input, id string, out *response) error {
	s, err := h.db.session(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.exec(q.setStatement(id)); err != nil {
		return err
	}
	if q.database != "" {
		if err := s.exec("USE " + quoteIdentifier(q.database)); err != nil {
			return err
		}
	}
	format := q.format
	if in.st.format != "" && in.st.kind != kindInsert {
		format = in.st.format
	}
	out.setFormat(format)
	if in.st.kind == kindSelect || in.st.kind == kindRead {
		// A query without effects ends with its client; a write that was sent is carried out.
		defer context.AfterFunc(ctx, func() { h.db.kill(id) })()
	}
	if in.st.kind == kindSelect && isNative(format) && !q.waitForEnd {
		streamed, err := h.stream(s, q, in, out)
		if streamed || err != nil {
			return err
		}
	}
	return h.answer(s, q, in, format, out)
}

// answer runs a statement to its end and sends its output.
func (h *handler) answer(s *session, q *request, in *input, format string, out *response) error {
	res, err := s.query(in.text, q.format, q.params)
	if err != nil {
		return err
	}
	defer res.close()
	out.http.Header().Set("X-ClickHouse-Summary", res.summary())
	if isNative(format) {
		return writeNative(out, res.bytes(), q.revision)
	}
	_, err = out.Write(res.bytes())
	return err
}

// isNative: names of formats have no case.
func isNative(format string) bool { return strings.EqualFold(format, "Native") }

const codeNotStreamable = codeBadArguments

// stream sends a SELECT block by block. It reports false when the statement turns out to be none (WITH … INSERT).
func (h *handler) stream(s *session, q *request, in *input, out *response) (bool, error) {
	st, err := s.stream(in.text, q.format, q.params)
	if err != nil {
		var e *exception
		if errors.As(err, &e) && e.code == codeNotStreamable && bytes.Contains([]byte(e.message), []byte("Streaming query is not supported")) {
			return false, nil
		}
		return true, err
	}
	defer st.close()
	for {
		chunk, err := st.next()
		if err != nil || chunk == nil {
			return true, err
		}
		err = writeNative(out, chunk.bytes(), q.revision)
		chunk.close()
		if err != nil {
			return true, err
		}
	}
}

func quoteIdentifier(s string) string { return "`" + identifierEscapes.Replace(s) + "`" }
