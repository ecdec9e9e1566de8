package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// columnType knows how many bytes the values of a ClickHouse type take in the Native format. A type either has a fixed
// size or one of the layouts below.
type columnType struct {
	size   uint64 // bytes per value; 0: by layout
	layout layout
	args   []*columnType
}

type layout uint8

const (
	layoutFixed layout = iota
	layoutString
	layoutNullable
	layoutArray
	layoutTuple
	layoutLowCardinality
)

// maxTypeDepth bounds the nesting of types; ClickHouse itself gives up earlier.
const maxTypeDepth = 64

var fixedSizes = map[string]uint64{
	"Bool": 1, "UInt8": 1, "Int8": 1, "Enum8": 1, "Nothing": 1,
	"UInt16": 2, "Int16": 2, "Enum16": 2, "Date": 2, "BFloat16": 2,
	"UInt32": 4, "Int32": 4, "Float32": 4, "DateTime": 4, "Date32": 4, "Decimal32": 4, "IPv4": 4, "Time": 4,
	"UInt64": 8, "Int64": 8, "Float64": 8, "DateTime64": 8, "Decimal64": 8, "Time64": 8,
	"UInt128": 16, "Int128": 16, "UUID": 16, "IPv6": 16, "Decimal128": 16,
	"UInt256": 32, "Int256": 32, "Decimal256": 32,
}

var aliases = map[string]string{
	"Point": "Tuple(Float64, Float64)", "Ring": "Array(Point)", "LineString": "Array(Point)",
	"Polygon": "Array(Ring)", "MultiLineString": "Array(LineString)", "MultiPolygon": "Array(Polygon)",
}

func parseType(text string) (*columnType, error) {
	t, err := parseTypeDepth(text, 0)
	if err != nil {
		return nil, &exception{code: codeNotImplemented, message: fmt.Sprintf(
			"the embedded engine cannot send a column of type %s in Native format: %s; convert it in the query", text, err)}
	}
	return t, nil
}

func parseTypeDepth(text string, depth int) (*columnType, error) {
	if depth > maxTypeDepth {
		return nil, fmt.Errorf("nested too deep")
	}
	name, args, err := splitType(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	if size, ok := fixedSizes[name]; ok {
		return &columnType{size: size}, nil
	}
	if alias, ok := aliases[name]; ok {
		return parseTypeDepth(alias, depth+1)
	}
	switch {
	case name == "String":
		return &columnType{layout: layoutString}, nil
	case strings.HasPrefix(name, "Interval"):
		return &columnType{size: 8}, nil
	case name == "FixedString" && len(args) == 1:
		n, err := strconv.ParseUint(args[0], 10, 32)
		return &columnType{size: n}, err
	case name == "Decimal" && len(args) >= 1:
		return decimal(args[0])
	case name == "SimpleAggregateFunction" && len(args) == 2:
		return parseTypeDepth(args[1], depth+1)
	}
	return composite(name, args, depth)
}

func composite(name string, args []string, depth int) (*columnType, error) {
	kinds := map[string]layout{"Nullable": layoutNullable, "Array": layoutArray, "Map": layoutArray, "Nested": layoutArray,
		"Tuple": layoutTuple, "LowCardinality": layoutLowCardinality}
	kind, ok := kinds[name]
	if !ok || len(args) == 0 && kind != layoutTuple {
		return nil, fmt.Errorf("%s is not supported", name)
	}
	t := &columnType{layout: kind}
	for _, arg := range args {
		if name == "Tuple" || name == "Nested" {
			arg = dropElementName(arg)
		}
		child, err := parseTypeDepth(arg, depth+1)
		if err != nil {
			return nil, err
		}
		t.args = append(t.args, child)
	}
	switch {
	case name == "Map" || name == "Nested":
		t.args = []*columnType{{layout: layoutTuple, args: t.args}}
	case kind == layoutLowCardinality && t.args[0].layout == layoutNullable:
		t.args[0] = t.args[0].args[0] // its dictionary has the null as its first value, not as a map
	}
	if kind != layoutTuple && len(t.args) != 1 {
		return nil, fmt.Errorf("%s takes one argument", name)
	}
	return t, nil
}

func decimal(precision string) (*columnType, error) {
	p, err := strconv.Atoi(precision)
	switch {
	case err != nil || p < 1 || p > 76:
		return nil, fmt.Errorf("bad precision %q", precision)
	case p <= 9:
		return &columnType{size: 4}, nil
	case p <= 18:
		return &columnType{size: 8}, nil
	case p <= 38:
		return &columnType{size: 16}, nil
	}
	return &columnType{size: 32}, nil
}

// splitType cuts Name(arg, arg) at its top level; quotes may contain anything.
func splitType(text string) (name string, args []string, err error) {
	open := strings.IndexByte(text, '(')
	if open < 0 {
		return text, nil, nil
	}
	if !strings.HasSuffix(text, ")") {
		return "", nil, fmt.Errorf("bad type %q", text)
	}
	inner := text[open+1 : len(text)-1]
	l := &lexer{text: []byte(inner)}
	depth, start := 0, 0
	for {
		t := l.next()
		if t.kind == tokenEnd {
			break
		}
		if t.kind != tokenOther {
			continue
		}
		depth += bracket(inner[t.start])
		if inner[t.start] == ',' && depth == 0 {
			args = append(args, strings.TrimSpace(inner[start:t.start]))
			start = t.end
		}
	}
	if rest := strings.TrimSpace(inner[start:]); rest != "" || args != nil {
		args = append(args, rest)
	}
	return text[:open], args, nil
}

// dropElementName turns `name Type` into `Type`. A type itself has no blank outside of its brackets.
func dropElementName(arg string) string {
	l := &lexer{text: []byte(arg)}
	first := l.next()
	second := l.next()
	if second.kind == tokenWord && second.start > first.end {
		return arg[second.start:]
	}
	return arg
}

// skipPrefix moves over the state that comes once per column, before its data.
func (t *columnType) skipPrefix(r *nativeReader) {
	if t.layout == layoutLowCardinality {
		if version := r.uint64(); version != 1 && r.err == nil {
			r.err = fmt.Errorf("unknown dictionary version %d", version)
		}
		return
	}
	for _, arg := range t.args {
		arg.skipPrefix(r)
	}
}

// skip moves over rows values.
func (t *columnType) skip(r *nativeReader, rows uint64) {
	switch t.layout {
	case layoutFixed:
		r.skip(rows, t.size)
	case layoutString:
		for i := uint64(0); i < rows && r.err == nil; i++ {
			r.str()
		}
	case layoutNullable:
		r.skip(rows, 1)
		t.args[0].skip(r, rows)
	case layoutArray:
		r.skipArray(t.args[0], rows)
	case layoutTuple:
		if len(t.args) == 0 {
			r.skip(rows, 1) // the empty tuple is a byte per row
		}
		for _, arg := range t.args {
			arg.skip(r, rows)
		}
	case layoutLowCardinality:
		r.skipDictionary(t.args[0], rows)
	}
}

// skipArray: all ends, counted in elements from the column's start, then all elements.
func (r *nativeReader) skipArray(element *columnType, rows uint64) {
	if rows == 0 {
		return
	}
	r.skip(rows-1, 8)
	if total := r.uint64(); r.err == nil {
		element.skip(r, total)
	}
}

// Flags of a LowCardinality column (SerializationLowCardinality.cpp).
const (
	dictionaryGlobal     = 1 << 8
	dictionaryAdditional = 1 << 9
)

// skipDictionary: index width and flags, the dictionary, then an index per row.
func (r *nativeReader) skipDictionary(value *columnType, rows uint64) {
	for rows > 0 && r.err == nil {
		flags := r.uint64()
		if flags&dictionaryGlobal != 0 || flags&0xff > 3 {
			r.err = fmt.Errorf("unknown dictionary flags %#x", flags)
			return
		}
		if flags&dictionaryAdditional != 0 {
			value.skip(r, r.uint64())
		}
		n := r.uint64()
		if n == 0 || n > rows {
			r.err = fmt.Errorf("dictionary indexes %d of %d rows", n, rows)
			return
		}
		r.skip(n, 1<<(flags&0xff))
		rows -= n
	}
}
