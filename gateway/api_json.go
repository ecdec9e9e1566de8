package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/hoplog/hoplog/commands"
)

// jsonReader reads one JSON text (RFC 8259) as a stream of expected things and refuses all else: unknown and repeated
// names, wrong types, invalid UTF-8, lone surrogates, anything after the value. What nobody expects is never read, so
// nothing nests deeper than its callers. Errors are *commands.Refusal and name the field; after one the reader is done.
type jsonReader struct {
	data []byte
	pos  int
	path []jsonStep
}

// jsonStep is a name, or an index when the name is empty.
type jsonStep struct {
	name  string
	index int
}

func newJSONReader(data []byte) (*jsonReader, error) {
	r := &jsonReader{data: data}
	if !utf8.Valid(data) {
		return nil, r.refuse("the body is not valid UTF-8")
	}
	if bytes.HasPrefix(data, []byte("\uFEFF")) {
		return nil, r.refuse("the body begins with a byte order mark (EF BB BF), which JSON must not have; leave it out")
	}
	if r.peek() == 0 {
		return nil, r.refuse("the body is empty; send a JSON object")
	}
	return r, nil
}

// end refuses what follows the value.
func (r *jsonReader) end() error {
	r.peek()
	if r.pos < len(r.data) {
		return r.syntax("something follows the JSON value")
	}
	return nil
}

// object calls member after each name; member reads the value and reports whether it knows the name.
func (r *jsonReader) object(member func(name string) (known bool, err error)) error {
	if !r.take('{') {
		return r.wrongType("a JSON object")
	}
	if r.take('}') {
		return nil
	}
	var stack [16]string
	seen := stack[:0]
	for {
		name, err := r.name()
		if err != nil {
			return err
		}
		r.path = append(r.path, jsonStep{name: name})
		if slices.Contains(seen, name) {
			return r.refuse(r.where() + " stands there twice")
		}
		seen = append(seen, name)
		known, err := member(name)
		if err != nil {
			return err
		}
		if !known {
			return r.refuse(r.where() + " is not a field of this request")
		}
		r.path = r.path[:len(r.path)-1]
		if r.take('}') {
			return nil
		}
		if !r.take(',') {
			return r.syntax("a comma or } is missing")
		}
	}
}

func (r *jsonReader) name() (string, error) {
	if r.peek() != '"' {
		return "", r.syntax("a name in double quotes is missing")
	}
	name, err := r.str()
	if err == nil && !r.take(':') {
		err = r.syntax("a colon is missing")
	}
	return name, err
}

// array calls item before each element, at most limit times; item reads the element.
func (r *jsonReader) array(limit int, item func(i int) error) error {
	if !r.take('[') {
		return r.wrongType("an array")
	}
	if r.take(']') {
		return nil
	}
	for i := 0; ; i++ {
		if i == limit {
			return r.refuse(fmt.Sprintf("%s has more than %d elements", r.where(), limit))
		}
		r.path = append(r.path, jsonStep{index: i})
		if err := item(i); err != nil {
			return err
		}
		r.path = r.path[:len(r.path)-1]
		if r.take(']') {
			return nil
		}
		if !r.take(',') {
			return r.syntax("a comma or ] is missing")
		}
	}
}

// str reads a string.
func (r *jsonReader) str() (string, error) {
	if !r.take('"') {
		return "", r.wrongType("a string")
	}
	for i := r.pos; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '"':
			s := string(r.data[r.pos:i])
			r.pos = i + 1
			return s, nil
		case c == '\\':
			return r.escaped(i)
		case c < ' ':
			r.pos = i
			return "", r.syntax("a control character stands unescaped in a string")
		}
	}
	return "", r.cut()
}

// escaped reads on from the first backslash of a string, at i.
func (r *jsonReader) escaped(i int) (string, error) {
	out := append(make([]byte, 0, i-r.pos+64), r.data[r.pos:i]...)
	for r.pos = i; r.pos < len(r.data); {
		switch c := r.data[r.pos]; {
		case c == '"':
			r.pos++
			return string(out), nil
		case c == '\\':
			char, ok := r.escape()
			if !ok {
				return "", r.syntax("an escape in a string is not valid")
			}
			out = utf8.AppendRune(out, char)
		case c < ' ':
			return "", r.syntax("a control character stands unescaped in a string")
		default:
			out = append(out, c)
			r.pos++
		}
	}
	return "", r.cut()
}

// escape reads one escape sequence, for a surrogate pair two.
func (r *jsonReader) escape() (rune, bool) {
	if r.pos+1 >= len(r.data) {
		return 0, false
	}
	const escapes, meanings = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(escapes, r.data[r.pos+1]); i >= 0 {
		r.pos += 2
		return rune(meanings[i]), true
	}
	first, ok := r.unicodeEscape()
	if !ok || !utf16.IsSurrogate(first) {
		return first, ok
	}
	second, ok := r.unicodeEscape()
	char := utf16.DecodeRune(first, second)
	return char, ok && char != utf8.RuneError
}

func (r *jsonReader) unicodeEscape() (rune, bool) {
	const length = len(`\u0000`)
	if r.pos+length > len(r.data) || r.data[r.pos] != '\\' || r.data[r.pos+1] != 'u' {
		return 0, false
	}
	for _, c := range r.data[r.pos+2 : r.pos+length] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(string(r.data[r.pos+2:r.pos+length]), 16, 16)
	r.pos += length
	return rune(n), err == nil
}

// integer reads a whole number.
func (r *jsonReader) integer() (int64, error) {
	c := r.peek()
	if c != '-' && (c < '0' || c > '9') {
		return 0, r.wrongType("a whole number")
	}
	start := r.pos
	for r.pos < len(r.data) && strings.IndexByte("+-.0123456789Ee", r.data[r.pos]) >= 0 {
		r.pos++
	}
	text := string(r.data[start:r.pos])
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || len(digits) > 1 && digits[0] == '0' || strings.Trim(digits, "0123456789") != "" {
		return 0, r.refuse(r.where() + " must be a whole number, written without point or exponent")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, r.refuse(r.where() + " is too large a number")
	}
	return n, nil
}

func (r *jsonReader) boolean() (bool, error) {
	switch {
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	}
	return false, r.wrongType("true or false")
}

// null reports whether the next value is null, and takes it if so.
func (r *jsonReader) null() bool { return r.word("null") }

func (r *jsonReader) word(word string) bool {
	if r.peek() != word[0] || !strings.HasPrefix(string(r.data[r.pos:min(len(r.data), r.pos+len(word))]), word) {
		return false
	}
	r.pos += len(word)
	return true
}

// peek skips white space and returns the next byte, 0 at the end.
func (r *jsonReader) peek() byte {
	for ; r.pos < len(r.data); r.pos++ {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) take(c byte) bool {
	if r.peek() != c || r.pos == len(r.data) {
		return false
	}
	r.pos++
	return true
}

// where names the current field, such as links[3].tags[0]; "" outside any.
func (r *jsonReader) where() string {
	var b strings.Builder
	for i, step := range r.path {
		switch {
		case step.name == "":
			fmt.Fprintf(&b, "[%d]", step.index)
		case i == 0:
			b.WriteString(clipName(step.name))
		default:
			b.WriteString("." + clipName(step.name))
		}
	}
	return b.String()
}

// clipName keeps what a caller chose from filling the answer.
func clipName(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}

func (r *jsonReader) refuse(detail string) error {
	return commands.Refuse(commands.CodeInvalidRequest, r.where(), detail)
}

func (r *jsonReader) wrongType(want string) error {
	if r.peek(); r.pos == len(r.data) {
		return r.cut()
	}
	if len(r.path) == 0 {
		return r.refuse("the body must be " + want)
	}
	return r.refuse(r.where() + " must be " + want)
}

func (r *jsonReader) cut() error {
	r.pos = len(r.data)
	return r.syntax("it ends too early")
}

func (r *jsonReader) syntax(detail string) error {
	return r.refuse(fmt.Sprintf("the body is not valid JSON: at byte %d %s", r.pos, detail))
}
