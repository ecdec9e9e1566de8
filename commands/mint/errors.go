package mint

import "errors"

// What a draw can fail with.
var (
	// ErrNoIDs: the leased ids are used up and the next segment has not arrived. Try again later.
	ErrNoIDs = errors.New("no ids left")
	// ErrNoKey: no permutation key is known yet.
	ErrNoKey = errors.New("no permutation key")
	// ErrLength: codes of this length are not generated.
	ErrLength = errors.New("code length out of range")
	// ErrForeignBucket: the bucket is not one of the minter's partition.
	ErrForeignBucket = errors.New("bucket of another partition")
	// ErrClosed: the life is over.
	ErrClosed = errors.New("minter is closed")
)
