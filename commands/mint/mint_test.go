package mint

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hoplog/hoplog/events"
)

func open(t testing.TB, config Config) *Minter {
	t.Helper()
	if config.Partitions == 0 {
		config.Partitions = 4
	}
	if config.Leaser == nil {
		config.Leaser = newRegistry()
	}
	if config.Key.Version == 0 {
		config.Key = testKey
	}
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// ownBucket returns a random bucket of the minter's partition.
func (m *Minter) ownBucket(r *rand.Rand) uint32 { return m.first + r.Uint32N(m.buckets) }

func TestDrawRoutesToTheBucket(t *testing.T) {
	for _, partitions := range []int{1, 4, 64, 4096} {
		m := open(t, Config{Partitions: partitions, Partition: int32(partitions - 1)})
		source := rand.New(rand.NewPCG(1, uint64(partitions)))
		for i := range 200 {
			bucket, namespace := m.ownBucket(source), []string{"s.example", "localhost:8081"}[i%2]
			length := MinLength + i%6
			id, code, err := m.Draw(namespace, length, bucket)
			if err != nil {
				t.Fatal(err)
			}
			if len(code) != length || events.BucketOf(namespace, code) != bucket || events.PartitionOf(bucket, partitions) != int32(partitions-1) {
				t.Fatalf("%d partitions, bucket %d: drew %s", partitions, bucket, code)
			}
			ordinal := id & (1<<spaceShift - 1)
			if id>>spaceShift != uint64(length) || string(appendCode(nil, mustPermutation(t, testKey, length).Value(ordinal), length)) != code {
				t.Fatalf("id %x does not stand for %s", id, code)
			}
		}
	}
}

func TestRandomCodes(t *testing.T) {
	m := open(t, Config{})
	source := rand.New(rand.NewPCG(2, 2))
	seen := map[string]bool{}
	for i := range 300 {
		length := []int{0, 8, 9, 10, 11, 20, 64}[i%7]
		bucket := m.ownBucket(source)
		id, code, err := m.DrawRandom("s.example", length, bucket)
		if err != nil {
			t.Fatal(err)
		}
		if want := max(length, 8); len(code) != want || events.BucketOf("s.example", code) != bucket || seen[code] || id>>spaceShift != plainSpace || id == 0 {
			t.Fatalf("length %d, bucket %d: drew %x %s", length, bucket, id, code)
		}
		if normal, err := events.NormalizeCode(code); err != nil || normal != code {
			t.Fatalf("%s is no code: %v", code, err)
		}
		seen[code] = true
	}
	if _, code, err := m.Draw("s.example", 12, m.first); err != nil || len(code) != 12 {
		t.Errorf("a long code: %q, %v", code, err)
	}
}

func TestRandomCodesAreUniform(t *testing.T) {
	r := newRandomness(rand.NewChaCha8([32]byte{1}))
	const draws = 62 * 2000
	var counts [256]int
	for range draws / 8 {
		code, err := r.appendCode(nil, 8)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range code {
			counts[c]++
		}
	}
	chi := 0.0
	for _, c := range []byte(alphabet) {
		d := float64(counts[c]) - draws/62
		chi += d * d / (draws / 62)
	}
	if chi > 120 { // 61 degrees of freedom: one in 100,000
		t.Errorf("chi-square %.1f", chi)
	}
}

func TestRandomSourceFailure(t *testing.T) {
	m := open(t, Config{Random: bytes.NewReader(nil)})
	if _, _, err := m.DrawRandom("s.example", 0, 0); err == nil {
		t.Error("drew from an empty source")
	}
	if id, err := m.DrawID(); err != nil || id != 1 {
		t.Errorf("first id %d, %v; want 1", id, err)
	}
}

func TestDrawRefuses(t *testing.T) {
	m := open(t, Config{Partition: 1})
	keyless, err := New(Config{Partitions: 1, Leaser: newRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	defer keyless.Close()
	closed := open(t, Config{})
	closed.Close()
	for name, c := range map[string]struct {
		draw func() (uint64, string, error)
		want error
	}{
		"too short":              {func() (uint64, string, error) { return m.Draw("s.example", 4, 1024) }, ErrLength},
		"negative":               {func() (uint64, string, error) { return m.Draw("s.example", -1, 1024) }, ErrLength},
		"too long":               {func() (uint64, string, error) { return m.Draw("s.example", 65, 1024) }, ErrLength},
		"random too short":       {func() (uint64, string, error) { return m.DrawRandom("s.example", 7, 1024) }, ErrLength},
		"random too long":        {func() (uint64, string, error) { return m.DrawRandom("s.example", 65, 1024) }, ErrLength},
		"bucket below":           {func() (uint64, string, error) { return m.Draw("s.example", 7, 1023) }, ErrForeignBucket},
		"bucket above":           {func() (uint64, string, error) { return m.Draw("s.example", 7, 2048) }, ErrForeignBucket},
		"bucket of no partition": {func() (uint64, string, error) { return m.DrawRandom("s.example", 8, 5000) }, ErrForeignBucket},
		"no key":                 {func() (uint64, string, error) { return keyless.Draw("s.example", 7, 0) }, ErrNoKey},
		"closed":                 {func() (uint64, string, error) { return closed.Draw("s.example", 7, 0) }, ErrClosed},
		"closed, random":         {func() (uint64, string, error) { return closed.DrawRandom("s.example", 8, 0) }, ErrClosed},
		"closed, id":             {func() (uint64, string, error) { id, err := closed.DrawID(); return id, "", err }, ErrClosed},
	} {
		if id, code, err := c.draw(); !errors.Is(err, c.want) || id != 0 || code != "" {
			t.Errorf("%s: %d %q %v, want %v", name, id, code, err, c.want)
		}
	}
	for _, bad := range []Config{{Partitions: 3}, {Partitions: 4, Partition: 4}, {Partitions: 4, Partition: -1}, {}, {Partitions: 4, Length: 3}, {Partitions: 4, RandomLength: 65}} {
		bad.Leaser = newRegistry()
		if _, err := New(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// Writers of all partitions and several lives of one share the registry: no id and no (namespace, code) comes twice.
func TestLivesNeverShareAnID(t *testing.T) {
	shared, ids, codes := newRegistry(), map[uint64]bool{}, map[string]bool{}
	for life := range 12 {
		m := open(t, Config{Partition: int32(life % 4), Leaser: shared, LeastLease: 512, MostLease: 4096})
		source := rand.New(rand.NewPCG(3, uint64(life)))
		for i := range 300 {
			id, code := uint64(0), ""
			err := retry(func() (err error) {
				switch i % 3 {
				case 0:
					id, err = m.DrawID()
				case 1:
					id, _, err = m.DrawRandom("s.example", 0, m.ownBucket(source))
				default:
					id, code, err = m.Draw("s.example", 0, m.ownBucket(source))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if id == 0 || id>>63 != 0 || ids[id] || codes[code] {
				t.Fatalf("life %d: %x %q came twice", life, id, code)
			}
			ids[id] = true
			if code != "" {
				codes[code] = true
			}
		}
		m.Close() // the rest of its segments and pools burns
	}
}

// retry waits while a small test segment is being replaced.
func retry(draw func() error) error {
	for range 1000 {
		if err := draw(); !errors.Is(err, ErrNoIDs) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return ErrNoIDs
}

// A caller that finds a code taken draws again, and in a bucket that is nearly full of taken codes it still ends.
func TestTakenCodesAreDrawnAgain(t *testing.T) {
	m := open(t, Config{Partitions: 4096, Partition: 7})
	taken := map[string]bool{}
	for range 50 {
		for {
			_, code, err := m.Draw("s.example", 5, 7)
			if err != nil {
				t.Fatal(err)
			}
			if strings.ContainsAny(code[:1], "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") || taken[code] {
				continue // pretend that somebody has these
			}
			taken[code] = true
			break
		}
	}
}

func TestKeysRotate(t *testing.T) {
	m := open(t, Config{})
	newer := Key{Version: 2, Secret: [16]byte{9}}
	m.UseKey(newer)
	m.UseKey(testKey) // older: ignored
	id, code, err := m.Draw("s.example", 7, 5)
	if err != nil {
		t.Fatal(err)
	}
	if want := string(appendCode(nil, mustPermutation(t, newer, 7).Value(id&(1<<spaceShift-1)), 7)); code != want {
		t.Errorf("drew %s, under the newer key it is %s", code, want)
	}
}
