package engine

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// Codes of ClickHouse exceptions that this package raises itself (src/Common/ErrorCodes.cpp).
const (
	codeBadArguments   = 36
	codeNotImplemented = 48
	codeLogicalError   = 49
	codeSyntaxError    = 62
	codeUnknownQuery   = 78
	codeIncorrectData  = 117
	codeTooManyBytes   = 307
	codeAccessDenied   = 497
	codeAuthFailed     = 516
	codeStdException   = 1001
)

// exception is a ClickHouse exception; clickhouse-go turns it back into *proto.Exception.
type exception struct {
	code    int
	message string // complete, as the engine words it, or ours without the prefix
	status  int    // 0: by code
}

func (e *exception) Error() string {
	if strings.HasPrefix(e.message, "Code: ") {
		return e.message
	}
	return "Code: " + strconv.Itoa(e.code) + ". DB::Exception: " + e.message
}

var exceptionCode = regexp.MustCompile(`^(?:Error: )?Code: (\d+)\.`)

func parseException(text string) *exception {
	e := &exception{code: codeStdException, message: strings.TrimPrefix(text, "Error: ")}
	if m := exceptionCode.FindStringSubmatch(text); m != nil {
		e.code, _ = strconv.Atoi(m[1])
	}
	return e
}

func (e *exception) httpStatus() int {
	if e.status != 0 {
		return e.status
	}
	if s, ok := statusOfCode[e.code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// statusOfCode is ClickHouse's own table (src/Server/HTTP/exceptionCodeToHTTPStatus.cpp); all other codes are 500.
var statusOfCode = func() map[int]int {
	codes := map[int]int{}
	for status, list := range map[int][]int{
		http.StatusUnauthorized: {194},
		http.StatusForbidden:    {192, 193, 497, 512, 516},
		http.StatusBadRequest: {
			6, 25, 26, 27, 38, 41, 72, 441, 675, 676, 376, // cannot parse …
			8, 15, 36, 44, 427, 53, 62, 117, 321, // arguments, columns, syntax, data, types
			37, 123, 167, 168, 223, // syntax tree
		},
		http.StatusNotFound:              {46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 152, 336, 511},
		http.StatusRequestEntityTooLarge: {229},
		http.StatusNotImplemented:        {48},
		http.StatusServiceUnavailable:    {76, 209, 439},
		http.StatusLengthRequired:        {381},
		http.StatusRequestTimeout:        {159},
	} {
		for _, code := range list {
			codes[code] = status
		}
	}
	return codes
}()
