package shared

import "errors"

// Errors of this package, to be matched with errors.Is.
var (
	// ErrConfig: the settings are such that no Redis can be reached. It never repeats the URL, which may hold a password.
	ErrConfig = errors.New("bad settings of Redis")
	// ErrUnavailable: Redis cannot be reached, or does not answer in time. The cause is wrapped. Try again.
	ErrUnavailable = errors.New("redis is unavailable")
)

// What a value can be that is no record.
var (
	errForm = errors.New("not a value of ours")
	errBare = errors.New("a version without a record")
)
