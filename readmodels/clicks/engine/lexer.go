package engine

import "bytes"

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // keyword, bare identifier or number
	tokenQuoted           // "identifier" or `identifier`
	tokenString           // 'literal' or $tag$literal$tag$
	tokenOther            // one character of anything else
)

type token struct {
	kind       tokenKind
	start, end int
}

// lexer cuts SQL into tokens the way ClickHouse's does (src/Parsers/Lexer.cpp), as far as finding keywords outside of
// literals and comments needs.
type lexer struct {
	text []byte
	pos  int
}

func (l *lexer) next() token {
	l.skipBlank()
	start := l.pos
	if start >= len(l.text) {
		return token{tokenEnd, start, start}
	}
	switch c := l.text[start]; {
	case isWord(c):
		for l.pos < len(l.text) && (isWord(l.text[l.pos]) || l.text[l.pos] == '$') {
			l.pos++
		}
		return token{tokenWord, start, l.pos}
	case c == '\'':
		l.skipQuoted(c)
		return token{tokenString, start, l.pos}
	case c == '"' || c == '`':
		l.skipQuoted(c)
		return token{tokenQuoted, start, l.pos}
	case c == '$':
		if l.skipHeredoc() {
			return token{tokenString, start, l.pos}
		}
	}
	l.pos++
	return token{tokenOther, start, l.pos}
}

func isWord(c byte) bool {
	return c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func (l *lexer) skipBlank() {
	for l.pos < len(l.text) {
		rest := l.text[l.pos:]
		switch {
		case isBlank(rest[0]):
			l.pos++
		case bytes.HasPrefix(rest, []byte("--")), bytes.HasPrefix(rest, []byte("# ")), bytes.HasPrefix(rest, []byte("#!")):
			l.skipTo("\n", 0)
		case bytes.HasPrefix(rest, []byte("/*")):
			l.skipTo("*/", 2)
		default:
			return
		}
	}
}

// skipTo moves behind the next occurrence of mark that begins at least from bytes on, else to the end.
func (l *lexer) skipTo(mark string, from int) {
	l.pos = min(l.pos+from, len(l.text))
	if i := bytes.Index(l.text[l.pos:], []byte(mark)); i >= 0 {
		l.pos += i + len(mark)
		return
	}
	l.pos = len(l.text)
}

// skipQuoted: a doubled quote ends one literal and begins the next, which comes to the same.
func (l *lexer) skipQuoted(quote byte) {
	for l.pos++; l.pos < len(l.text); l.pos++ {
		switch l.text[l.pos] {
		case '\\':
			l.pos++
		case quote:
			l.pos++
			return
		}
	}
	l.pos = len(l.text)
}

func (l *lexer) skipHeredoc() bool {
	end := l.pos + 1
	for end < len(l.text) && isWord(l.text[end]) {
		end++
	}
	if end >= len(l.text) || l.text[end] != '$' {
		return false
	}
	tag := string(l.text[l.pos : end+1])
	if !bytes.Contains(l.text[end+1:], []byte(tag)) {
		return false
	}
	l.skipTo(tag, len(tag))
	return true
}
