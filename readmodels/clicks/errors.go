package clicks

import (
	"errors"
	"fmt"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrUnavailable: ClickHouse cannot be reached, does not answer in time, or has not been set up yet. The cause is wrapped.
	ErrUnavailable = errors.New("clickhouse is unavailable")
	// ErrNewerSchema: a newer version of this program has changed the tables. Nothing is written or read.
	ErrNewerSchema = errors.New("clickhouse schema is newer than this program")
	// ErrBadQuery: the question cannot be answered as it is. errors.As finds a *QueryError.
	ErrBadQuery = errors.New("bad query")
)

// QueryError says which part of a question is wrong, in words for the person who asked.
type QueryError struct {
	Field  string // from, to, interval, time_zone or by
	Detail string
}

func (e *QueryError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrBadQuery, e.Field, e.Detail) }

func (e *QueryError) Unwrap() error { return ErrBadQuery }

// unavailable wraps what a statement failed with.
func unavailable(doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}
