package handler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/disk"
	"github.com/hoplog/hoplog/schemas/pb"
)

// The store's key space. Everything of a bucket stands under prefix + bucket (two bytes, big endian).
const (
	prefixLink        = 'l' // bucket, route key → Link
	prefixRequest     = 'r' // bucket, owner, 0x00, key → StoredRequest
	prefixFingerprint = 'f' // bucket, fingerprint → route key
	prefixHead        = 'h' // bucket → BucketHead
	prefixPlace       = 'p' // partition → WriterCheckpoint
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

// message is what the generated code offers of every stored record.
type message interface {
	UnmarshalVT([]byte) error
	MarshalVT() ([]byte, error)
}

// reader reads values by key; nil if there is none. A value is not changed, by its owner nor by its reader.
type reader interface {
	get(key []byte) ([]byte, error)
}

// load reads the record under key into m; it returns nil if there is none.
func load[M message](r reader, key []byte, m M) (none M, err error) {
	value, err := r.get(key)
	if err != nil || value == nil {
		return none, err
	}
	if err := m.UnmarshalVT(value); err != nil {
		return none, storeError{fmt.Errorf("decoding state under %x: %w", key, err)}
	}
	return m, nil
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

// changes are writes on top of the confirmed state that are committed together or forgotten. A map serves them better than
// an indexed batch: most look-ups of a create find nothing, in either.
type changes struct {
	store  *store
	filter *keyFilter
	values map[string][]byte
}

func newChanges(s *store, f *keyFilter) *changes { return &changes{s, f, map[string][]byte{}} }

func (c *changes) get(key []byte) ([]byte, error) {
	if value, changed := c.values[string(key)]; changed {
		return value, nil
	}
	if c.filter.absent(key) {
		return nil, nil
	}
	return c.store.get(key)
}

func (c *changes) set(key, value []byte) { c.values[string(key)] = value }

func save[M message](c *changes, key []byte, m M) error {
	value, err := m.MarshalVT()
	if err != nil {
		return storeError{fmt.Errorf("encoding state: %w", err)}
	}
	c.set(key, value)
	return nil
}

// commit writes the changes and the partition's place in the log that they stand for, in one batch. It does not sync: the
// log is the truth, and what a power cut takes is folded again.
func (c *changes) commit(partition int32, at *place) error {
	if err := savePlace(c, partition, at); err != nil {
		return err
	}
	b := c.store.db.NewBatch()
	// In order, for the store finds the place of a key from that of the one before.
	for _, key := range slices.Sorted(maps.Keys(c.values)) {
		c.filter.add([]byte(key))
		if err := b.Set([]byte(key), c.values[key], nil); err != nil {
			return storeError{errors.Join(fmt.Errorf("saving state: %w", err), b.Close())}
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return storeError{fmt.Errorf("committing state: %w", err)}
	}
	return nil
}

// savePlace puts a partition's place in the log beside the state that it stands for.
func savePlace(c *changes, partition int32, at *place) error {
	err := at.checker.Saved(func(bucket uint32, head *pb.BucketHead) error {
		return save(c, bucketKey(prefixHead, bucket, 0), head)
	})
	if err != nil {
		return err
	}
	checkpoint := &pb.WriterCheckpoint{Next: at.checker.Next(), LowWatermark: at.checker.MaxLowWatermark()}
	for offset, id := range at.covered {
		checkpoint.Covered = append(checkpoint.Covered, &pb.CoveredCommand{Offset: offset, CommandId: id[:]})
	}
	return save(c, bucketKey(prefixPlace, uint32(partition), 0), checkpoint)
}

// loadPlace reads where a partition stood; the zero place of a new store.
func (s *store) loadPlace(topic string, partition int32, partitions int) (place, error) {
	at := newPlace(topic, partition, partitions)
	checkpoint, err := load(s, bucketKey(prefixPlace, uint32(partition), 0), &pb.WriterCheckpoint{})
	if err != nil || checkpoint == nil {
		return at, err
	}
	at.checker.Restore(checkpoint.GetNext(), checkpoint.GetLowWatermark())
	for _, c := range checkpoint.GetCovered() {
		at.covered[c.GetOffset()] = commandID(c.GetCommandId())
	}
	first, last := events.BucketsOf(partition, partitions)
	if err := s.loadHeads(at.checker, first, last); err != nil {
		return at, err
	}
	bad := events.BadKeyBucket(partition)
	return at, s.loadHeads(at.checker, bad, bad)
}

func (s *store) loadHeads(c *events.Checker, first, last uint32) error {
	for bucket := first; bucket <= last; bucket++ {
		head, err := load(s, bucketKey(prefixHead, bucket, 0), &pb.BucketHead{})
		if err != nil {
			return err
		}
		if head == nil {
			continue
		}
		if err := c.RestoreHead(bucket, head); err != nil {
			return err
		}
	}
	return nil
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
