package engine

import (
	"errors"
	"strings"
	"testing"
)

func TestParseStatement(t *testing.T) {
	for text, want := range map[string]struct {
		kind   statementKind
		format string
	}{
		"":                                                      {kindEmpty, ""},
		" \n-- SELECT 1\n/* ; */ # x":                           {kindEmpty, ""},
		"SELECT 1":                                              {kindSelect, ""},
		"(SELECT 1) UNION ALL SELECT 2":                         {kindSelect, ""},
		"with 1 as x select x format Native":                    {kindSelect, "Native"},
		"SELECT 1 FORMAT CSV;":                                  {kindSelect, "CSV"},
		"SELECT 1 FORMAT CSV SETTINGS a = 1":                    {kindSelect, "CSV"},
		"SELECT 'x FORMAT CSV'":                                 {kindSelect, ""},
		"SELECT format('{}', 1) FROM format":                    {kindSelect, ""},
		"SELECT $a$ FORMAT CSV; $a$":                            {kindSelect, ""},
		"SELECT 1 FORMAT CSV -- ; SELECT":                       {kindSelect, "CSV"},
		"SHOW TABLES FORMAT TSV":                                {kindRead, "TSV"},
		"DROP TABLE x":                                          {kindOther, ""},
		"INSERT INTO x SELECT 1 FORMAT Null":                    {kindOther, ""},
		"insert into x (format, values) VALUES":                 {kindInsert, "Values"},
		"INSERT INTO `a`.values (b) FORMAT TSV":                 {kindInsert, "TSV"},
		"INSERT INTO TABLE FUNCTION null('a UInt8') FORMAT TSV": {kindInsert, "TSV"},
	} {
		st, err := parseStatement([]byte(text))
		if err != nil || st.kind != want.kind || st.format != want.format {
			t.Errorf("%q: kind %d, format %q, %v; want kind %d, format %q", text, st.kind, st.format, err, want.kind, want.format)
		}
	}
}

func TestParseStatementRefuses(t *testing.T) {
	for text, code := range map[string]int{
		"SELECT 1; SELECT 2":                                 codeSyntaxError,
		"SELECT 1;;":                                         codeSyntaxError,
		"SELECT 'a''; ' || \"b\"; DROP TABLE x":              codeSyntaxError,
		"INSERT INTO x SELECT 1; DROP TABLE x":               codeSyntaxError,
		"INSERT INTO x; SELECT 1":                            codeSyntaxError,
		"INSERT INTO x FROM INFILE '/etc/passwd' FORMAT TSV": codeUnknownQuery,
		"INSERT INTO x(a)from/**/infile'/x'":                 codeUnknownQuery,
		"INSERT INTO x (SELECT 1) FROM INFILE 'x'":           codeUnknownQuery,
		"SELECT 1 INTO OUTFILE 'x'":                          codeUnknownQuery,
		"SELECT x$$ INTO OUTFILE 'a' -- $$":                  codeUnknownQuery,
		"EXPLAIN INSERT INTO x FROM INFILE 'x'":              codeUnknownQuery,
	} {
		_, err := parseStatement([]byte(text))
		var e *exception
		if !errors.As(err, &e) || e.code != code {
			t.Errorf("%q: %v, want code %d", text, err, code)
		}
	}
}

func TestInsertReadsItsDataFromAFile(t *testing.T) {
	for text, want := range map[string][2]string{
		"INSERT INTO t FORMAT TSV":                 {"INSERT INTO t  FROM INFILE 'F' COMPRESSION 'none' FORMAT TSV", ""},
		"INSERT INTO t FORMAT Native \n\n\x01":     {"INSERT INTO t  FROM INFILE 'F' COMPRESSION 'none' FORMAT Native", "\n\x01"},
		"INSERT INTO t FORMAT TSV\r\n1;2\n":        {"INSERT INTO t  FROM INFILE 'F' COMPRESSION 'none' FORMAT TSV", "1;2\n"},
		"INSERT INTO t (a) SETTINGS x=1 FORMAT T ": {"INSERT INTO t (a)  FROM INFILE 'F' COMPRESSION 'none' SETTINGS x=1 FORMAT T", ""},
		"INSERT INTO t VALUES (1),\n(2)":           {"INSERT INTO t  FROM INFILE 'F' COMPRESSION 'none'  FORMAT Values", "(1),\n(2)"},
		"INSERT INTO t SETTINGS x=1 VALUES (1)":    {"INSERT INTO t  FROM INFILE 'F' COMPRESSION 'none' SETTINGS x=1  FORMAT Values", "(1)"},
		"INSERT INTO t FORMAT Values (1)":          {"INSERT INTO t  FROM INFILE 'F' COMPRESSION 'none' FORMAT Values", "(1)"},
	} {
		st, err := parseStatement([]byte(text))
		if err != nil || st.kind != kindInsert {
			t.Errorf("%q: kind %d, %v", text, st.kind, err)
			continue
		}
		if got := string(st.withInfile([]byte(text), "F")); got != want[0] || text[st.data:] != want[1] {
			t.Errorf("%q:\ngot  %q, data %q\nwant %q, data %q", text, got, text[st.data:], want[0], want[1])
		}
	}
}

// Whatever the text: no panic, and what is passed on as a whole names no file and holds one statement at most.
func FuzzParseStatement(f *testing.F) {
	for _, seed := range []string{"SELECT 1; SELECT 2", "INSERT 0 FORMAT;0", "INSERT INTO t.;SELECT 1", "INSERT INTO t.INFILE 'x' VALUES", "INSERT INTO t (a) VALUES (1)", "INSERT INTO t FORMAT TSV\n1", "SELECT 'a\\'', $$x$$ -- \n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		st, err := parseStatement([]byte(text))
		if err != nil {
			return
		}
		passed := text
		if st.kind == kindInsert {
			passed = string(st.withInfile([]byte(text), "F"))
			if st.data < st.head && !st.values || st.data > len(text) || st.files > st.head {
				t.Fatalf("%q: %+v", text, st)
			}
			if again, err := parseStatement([]byte(text[:st.head])); !st.values && (err != nil || again.kind != kindInsert) {
				t.Fatalf("%q: statement alone: %+v, %v", text, again, err)
			}
		}
		l := &lexer{text: []byte(passed)}
		files, ended := 0, false
		for tok := l.next(); tok.kind != tokenEnd; tok = l.next() {
			if word := upper(l.text, tok); word == "INFILE" || word == "OUTFILE" {
				files++
			}
			if ended {
				t.Fatalf("%q passes two statements", passed)
			}
			ended = tok.kind == tokenOther && passed[tok.start] == ';'
		}
		allowed := strings.Count(passed, " FROM INFILE 'F' ")
		if files > allowed {
			t.Fatalf("%q passes a file", passed)
		}
	})
}
