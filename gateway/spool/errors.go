package spool

import "errors"

// Why a file cannot be the spool.
var (
	// ErrForeign: the file is not a spool, or one of a version or form that this binary does not read. It is left as it is.
	ErrForeign = errors.New("not a click spool of this version")
	// ErrTooSmall: the bound has no room for the segments that are asked for.
	ErrTooSmall = errors.New("click spool is too small")
)
