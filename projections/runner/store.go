package runner

import (
	"fmt"
)

// Store keeps a projection's state and the positions it stands for. Keys that begin with the zero byte are the runner's.
type Store interface {
	// Get appends the value under key to dst.
	Get(dst, key []byte) (value []byte, found bool, err error)
	// Scan calls f for every pair under a prefix, in key order. The slices are lent for the call.
	Scan(prefix []byte, f func(key, value []byte) error) error
	// Commit makes all of the sealed writes visible at once. No two of them change the same key. After an error, nothing of
	// them is.
	Commit(writes []*Write) error
}

// reserved is the first byte of the runner's own keys.
const reserved = 0x00

var (
	metaKey       = []byte{reserved, 'm'} // what the store is of
	journalPrefix = []byte{reserved, 'p'} // partition, number → see journal
)

// meta says what a store is of. It is compared as text.
func meta(projection, topic string, partitions int) string {
	return fmt.Sprintf("%s\n%s\n%d", projection, topic, partitions)
}

// stored is all that a store says of its positions.
type stored struct {
	meta     string
	journals []*journal // by partition
}

func load(s Store) (*stored, error) {
	text, _, err := s.Get(nil, metaKey)
	if err != nil {
		return nil, fmt.Errorf("reading what the store is of: %w", err)
	}
	out := &stored{meta: string(text)}
	err = s.Scan(journalPrefix, func(key, value []byte) error {
		partition, number, err := decodeJournalKey(key)
		if err != nil {
			return err
		}
		switch n := len(out.journals); {
		case partition == n:
			out.journals = append(out.journals, newJournal(int32(n)))
		case partition != n-1:
			return fmt.Errorf("%w: partition %d has no position", ErrDamaged, n)
		}
		return out.journals[partition].replay(number, value)
	})
	if err != nil {
		return nil, fmt.Errorf("reading stored positions: %w", err)
	}
	return out, nil
}
