package engine

import (
	"bytes"
	"fmt"
)

type statementKind uint8

const (
	kindEmpty  statementKind = iota
	kindSelect               // SELECT, WITH …: may be streamed
	kindRead                 // other statements with a result and without effects
	kindInsert               // INSERT whose data follows the statement
	kindOther                // DDL, SET, INSERT … SELECT, …
)

// statement is what the HTTP side must know about a query before the engine parses it.
//
// The library takes a query as its own command line client does: it would run several statements, read and write local
// files for INFILE and OUTFILE, and cut inline data of an INSERT at blank lines. A server does none of that, so the first
// two are refused here, and data is handed over through a file (see withInfile).
type statement struct {
	kind   statementKind
	format string // FORMAT of the output, or of the data of an INSERT; "" when not given
	data   int    // kindInsert: where the data begins
	files  int    // kindInsert: where FROM INFILE belongs
	values bool   // kindInsert: data of VALUES, whose keyword is at head
	head   int    // kindInsert: end of the text that stays
}

func parseStatement(text []byte) (statement, error) {
	l := &lexer{text: text}
	first := l.next()
	for first.kind == tokenOther && text[first.start] == '(' {
		first = l.next()
	}
	var st statement
	switch word := upper(text, first); word {
	case "":
		if first.kind != tokenEnd {
			st.kind = kindOther
		}
	case "INSERT":
		return parseInsert(l)
	case "SELECT", "WITH":
		st.kind = kindSelect
	case "SHOW", "DESCRIBE", "DESC", "EXISTS", "EXPLAIN":
		st.kind = kindRead
	default:
		st.kind = kindOther
	}
	if st.kind == kindOther {
		l.pos = first.start // it may be a lone semicolon
	}
	var err error
	st.format, err = scanTail(l)
	return st, err
}

// scanTail reads to the end, refuses what must not reach the library, and returns the name in a closing FORMAT clause.
func scanTail(l *lexer) (format string, err error) {
	var candidate string
	var prev token
	for prevWord := ""; ; {
		t := l.next()
		word := upper(l.text, t)
		switch {
		case t.kind == tokenEnd:
			return candidate, nil
		case word == "INFILE" || word == "OUTFILE":
			return "", &exception{code: codeUnknownQuery, message: word + " is not allowed over HTTP"}
		case t.kind == tokenOther && l.text[t.start] == ';':
			if after := l.next(); after.kind != tokenEnd {
				return "", &exception{code: codeSyntaxError, message: fmt.Sprintf("Syntax error (Multi-statements are not allowed): failed at position %d (end of query)", t.end)}
			}
			return candidate, nil
		case t.kind == tokenWord && prevWord == "FORMAT":
			candidate = string(l.text[t.start:t.end])
		case word == "SETTINGS" && candidate != "" && prev.kind == tokenWord:
			return candidate, scanRest(l)
		default:
			candidate = ""
		}
		prev, prevWord = t, word
	}
}

func scanRest(l *lexer) error {
	_, err := scanTail(l)
	return err
}

// parseInsert has seen INSERT.
func parseInsert(l *lexer) (statement, error) {
	st := statement{kind: kindOther, files: -1}
	depth := 0
	for named := false; ; {
		t := l.next()
		word := upper(l.text, t)
		switch {
		case t.kind == tokenEnd:
			return st, nil
		case word == "INFILE" || word == "OUTFILE" || t.kind == tokenOther && l.text[t.start] == ';':
			l.pos = t.start
			return st, scanRest(l)
		case t.kind == tokenOther:
			depth += bracket(l.text[t.start])
		case depth > 0:
		case !named && (t.kind == tokenQuoted || t.kind == tokenWord && word != "INTO" && word != "TABLE" && word != "FUNCTION"):
			named = true
			l.skipName()
		case word == "SETTINGS" && st.files < 0:
			st.files = t.start
		case word == "SELECT" || word == "WITH" || word == "EXPLAIN" || word == "WATCH":
			return st, scanRest(l)
		case word == "VALUES":
			return st.withData(l.text, t.start, t.end, "Values"), nil
		case word == "FORMAT":
			name := l.next()
			if name.kind != tokenWord {
				l.pos = t.end
				return st, scanRest(l)
			}
			return st.withData(l.text, t.start, name.end, string(l.text[name.start:name.end])), nil
		}
	}
}

// skipName skips the .name parts of a qualified name, which may be spelled like keywords. What is no name is left to be
// read.
func (l *lexer) skipName() {
	for l.pos < len(l.text) && l.text[l.pos] == '.' {
		l.pos++
		before := l.pos
		name := l.next()
		if word := upper(l.text, name); name.kind == tokenOther || word == "INFILE" || word == "OUTFILE" {
			l.pos = before
			return
		}
	}
}

// withData: data begins after blanks and at most one line end, as in ClickHouse's parser; every further byte belongs to
// it (a Native block of ten columns begins with a line feed).
func (st statement) withData(text []byte, clause, end int, format string) statement {
	st.kind, st.format, st.values, st.head = kindInsert, format, format == "Values" && end == clause+len("VALUES"), end
	if st.files < 0 {
		st.files = clause
	}
	st.data = end
	for st.data < len(text) && (text[st.data] == ' ' || text[st.data] == '\t' || text[st.data] == '\f') {
		st.data++
	}
	if st.data < len(text) && text[st.data] == '\r' {
		st.data++
	}
	if st.data < len(text) && text[st.data] == '\n' {
		st.data++
	}
	if st.values {
		st.head = clause
	}
	return st
}

// withInfile is the INSERT that reads its data from path.
func (st statement) withInfile(text []byte, path string) []byte {
	var b bytes.Buffer
	b.Write(text[:st.files])
	b.WriteString(" FROM INFILE '" + path + "' COMPRESSION 'none' ")
	b.Write(text[st.files:st.head])
	if st.values {
		b.WriteString(" FORMAT Values")
	}
	return b.Bytes()
}

func bracket(c byte) int {
	switch c {
	case '(', '[', '{':
		return 1
	case ')', ']', '}':
		return -1
	}
	return 0
}

// upper is the token as a keyword: "" when it is not a bare word.
func upper(text []byte, t token) string {
	if t.kind != tokenWord {
		return ""
	}
	return string(bytes.ToUpper(text[t.start:t.end]))
}
