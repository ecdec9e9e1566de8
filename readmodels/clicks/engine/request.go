package engine

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// request is one HTTP request, understood.
type request struct {
	query      string // of the URL
	database   string
	format     string // when the statement has none
	settings   []parameter
	params     []parameter
	revision   uint64
	queryID    string
	compress   bool // ClickHouse's own compression of the answer
	decompress bool // and of the body
	waitForEnd bool
	method     string // network_compression_method
	encode     bool   // enable_http_compression
}

// reserved are the parameters of ClickHouse's HTTP interface that are not settings.
var reserved = map[string]bool{"user": true, "password": true, "quota_key": true, "stacktrace": true, "buffer_size": true,
	"session_timeout": true, "session_check": true, "close_session": true, "role": true}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

func parseRequest(r *http.Request) (*request, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badArgument("bad URL parameters: %v", err)
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		return nil, notSupported("external tables")
	}
	q := &request{database: r.Header.Get("X-ClickHouse-Database"), format: r.Header.Get("X-ClickHouse-Format")}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names) // the same request gives the same statements
	for _, name := range names {
		if err := q.take(name, values[name][len(values[name])-1]); err != nil {
			return nil, err
		}
	}
	if q.format == "" {
		q.format = "TabSeparated"
	}
	if !settingName.MatchString(q.format) {
		return nil, badArgument("bad format name")
	}
	if r.Method != http.MethodPost { // as in ClickHouse: GET must not change anything
		q.settings = append(q.settings, parameter{"readonly", "2"})
	}
	return q, nil
}

func (q *request) take(name, value string) (err error) {
	switch name {
	case "":
	case "query":
		q.query = value
	case "database":
		if q.database == "" {
			q.database = value
		}
	case "default_format":
		if q.format == "" {
			q.format = value
		}
	case "query_id":
		q.queryID = value
	case "client_protocol_version":
		if q.revision, err = strconv.ParseUint(value, 10, 64); err != nil {
			return badArgument("bad client_protocol_version")
		}
	case "compress":
		q.compress, err = flag(name, value)
	case "decompress":
		q.decompress, err = flag(name, value)
	case "wait_end_of_query":
		q.waitForEnd, err = flag(name, value)
	case "session_id":
		return notSupported("sessions (session_id)")
	default:
		return q.takeSetting(name, value)
	}
	return err
}

func (q *request) takeSetting(name, value string) (err error) {
	if param, ok := strings.CutPrefix(name, "param_"); ok {
		q.params = append(q.params, parameter{param, value})
		return nil
	}
	if reserved[name] {
		return nil
	}
	if !settingName.MatchString(name) {
		return badArgument("bad parameter name")
	}
	switch name {
	case "network_compression_method":
		q.method = value
	case "enable_http_compression":
		q.encode, err = flag(name, value)
	}
	q.settings = append(q.settings, parameter{name, value})
	return err
}

func flag(name, value string) (bool, error) {
	switch value {
	case "1", "true":
		return true, nil
	case "0", "false", "":
		return false, nil
	}
	return false, badArgument("bad value of %s", name)
}

func badArgument(format string, args ...any) error {
	return &exception{code: codeBadArguments, message: fmt.Sprintf(format, args...)}
}

func notSupported(what string) error {
	return &exception{code: codeNotImplemented, message: "the embedded engine has no " + what}
}

// setStatement hands the settings over as literals of a SET; names were checked. mark identifies the query for kill,
// unless the client uses log_comment itself.
func (q *request) setStatement(mark string) string {
	var b strings.Builder
	b.WriteString("SET log_comment = " + quote(mark))
	for _, s := range q.settings {
		b.WriteString(", " + s.name + " = " + quote(s.value))
	}
	return b.String()
}

var quoteEscapes = strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\x00", `\0`)

func quote(s string) string { return "'" + quoteEscapes.Replace(s) + "'" }

var identifierEscapes = strings.NewReplacer(`\`, `\\`, "`", "\\`", "\x00", `\0`)

// errForbidden: the request comes from a web page, not from a database client.
var errForbidden = &exception{code: codeAccessDenied, message: "requests of web pages are not allowed"}

// checkOrigin keeps web pages away from the engine: a page may post to loopback without asking, and a name of its own
// may resolve to it. Database clients send no Origin and address the engine by address or as localhost.
func checkOrigin(r *http.Request, listen string) error {
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return errForbidden
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return errForbidden
	}
	if r.Host != "" && r.Host != listen && !isAddress(r.Host) {
		return errForbidden
	}
	return nil
}

func isAddress(hostport string) bool {
	u := url.URL{Host: hostport}
	host := u.Hostname()
	if strings.EqualFold(host, "localhost") || strings.Contains(host, ":") {
		return true
	}
	return strings.Trim(host, "0123456789.") == ""
}

// credentials of a request, from ClickHouse's headers, else Basic authorization, else the URL.
func credentials(r *http.Request) (user, password string) {
	user, password = r.Header.Get("X-ClickHouse-User"), r.Header.Get("X-ClickHouse-Key")
	if user == "" && password == "" {
		var ok bool
		if user, password, ok = r.BasicAuth(); !ok {
			user, password = r.URL.Query().Get("user"), r.URL.Query().Get("password")
		}
	}
	if user == "" {
		user = "default"
	}
	return user, password
}

func (o Options) authorize(r *http.Request) error {
	wantUser := o.User
	if wantUser == "" {
		wantUser = "default"
	}
	user, password := credentials(r)
	sameUser := subtle.ConstantTimeCompare([]byte(user), []byte(wantUser))
	samePassword := subtle.ConstantTimeCompare([]byte(password), []byte(o.Password))
	if sameUser&samePassword == 1 {
		return nil
	}
	return &exception{code: codeAuthFailed, message: "Authentication failed: password is incorrect, or there is no user with such name. (AUTHENTICATION_FAILED)"}
}

// readError words what went wrong with a request's body.
func readError(err error) error {
	var e *exception
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, errTooLarge):
		return &exception{code: codeTooManyBytes, message: err.Error(), status: http.StatusRequestEntityTooLarge}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &exception{code: codeIncorrectData, message: "the request body ended too early"}
	}
	return badBody(err)
}
