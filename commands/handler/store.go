package handler

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/schemas/pb"
)

// The store's key space. Everything of a bucket stands under prefix + bucket (two bytes, big endian).
const (
	prefixLink        = 'l' // bucket, route key → Link
	prefixRequest     = 'r' // bucket, owner, 0x00, key → StoredRequest
	prefixFingerprint = 'f' // bucket, fingerprint → route key
	prefixJournal     = 'j' // partition, number → a pair of the partition's journal
	prefixPlace       = 'p' // partition → WriterCheckpoint
	prefixHead        = 'h' // bucket → BucketHead: what stores had before they had journals
	prefixPartitions  = 'n' // the partition count that the store was made for
)

// store is the confirmed state of all link partitions of one process.
type store struct {
	db *pebble.DB
}

// openStore opens or makes the store in dir. A store made for another partition count is refused; one that is damaged is set
// aside and begun anew.
func openStore(dir string, partitions int, options *pebble.Options, reports disk.Reports) (*store, error) {
	options.EnsureDefaults()
	options.FormatMajorVersion, options.MemTableSize, options.Logger = pebble.FormatNewest, 32<<20, silence{}
	options.L0CompactionThreshold = 8 // keys come from everywhere: each merge rewrites all of the level below
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most look-ups of a create find nothing
	}
	db, err := disk.Open(dir, options, reports)
	if err != nil {
		return nil, fmt.Errorf("opening command state: %w", err)
	}
	s := &store{db}
	if err := s.checkPartitions(partitions); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *store) checkPartitions(want int) error {
	found, err := s.get([]byte{prefixPartitions})
	if err != nil {
		return err
	}
	if found == nil {
		return s.db.Set([]byte{prefixPartitions}, binary.BigEndian.AppendUint32(nil, uint32(want)), pebble.Sync)
	}
	if have := binary.BigEndian.Uint32(found); have != uint32(want) {
		return fmt.Errorf("command state was made for %d partitions, the topics have %d", have, want)
	}
	return nil
}

func bucketKey(prefix byte, bucket uint32, rest int) []byte {
	return binary.BigEndian.AppendUint16(append(make([]byte, 0, 3+rest), prefix), uint16(bucket))
}

func linkKey(bucket uint32, routeKey string) []byte {
	return append(bucketKey(prefixLink, bucket, len(routeKey)), routeKey...)
}

func requestKey(bucket uint32, r *pb.RequestRef) []byte {
	key := append(bucketKey(prefixRequest, bucket, len(r.GetOwner())+1+len(r.GetKey())), r.GetOwner()...)
	return append(append(key, 0), r.GetKey()...)
}

func fingerprintKey(bucket uint32, print []byte) []byte {
	return append(bucketKey(prefixFingerprint, bucket, len(print)), print...)
}

func journalKey(partition int32, number uint64) []byte {
	return binary.BigEndian.AppendUint64(bucketKey(prefixJournal, uint32(partition), 8), number)
}

func (s *store) get(key []byte) ([]byte, error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, storeError{fmt.Errorf("reading state: %w", err)}
	}
	copied := append(make([]byte, 0, len(value)), value...)
	return copied, closer.Close()
}

// sweep drops a bucket's request keys that no longer count at the bucket's time. Only cleaning: decisions judge the age.
func (s *store) sweep(bucket uint32, bucketTimeUS int64) error {
	first := bucketKey(prefixRequest, bucket, 0)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: first, UpperBound: bucketKey(prefixRequest, bucket+1, 0)})
	if err != nil {
		return fmt.Errorf("sweeping request keys: %w", err)
	}
	b := s.db.NewBatch()
	for it.First(); it.Valid(); it.Next() {
		var r pb.StoredRequest
		if err = r.UnmarshalVT(it.Value()); err != nil {
			break
		}
		if !commands.KeyCounts(r.GetTimeUs(), bucketTimeUS) {
			err = errors.Join(err, b.Delete(it.Key(), nil))
		}
	}
	if err := errors.Join(err, it.Close()); err != nil {
		return errors.Join(fmt.Errorf("sweeping request keys of bucket %d: %w", bucket, err), b.Close())
	}
	return b.Commit(pebble.NoSync)
}

// silence keeps the store's own log lines, which are not ours in form, out of the process's log; its errors are returned.
type silence struct{}

func (silence) Infof(string, ...any)  {}
func (silence) Errorf(string, ...any) {}
func (silence) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("command state: "+format, args...))
}
