package mint

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

var testKey = Key{Version: 1, Secret: [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}

func mustPermutation(t testing.TB, key Key, length int) *Permutation {
	t.Helper()
	p, err := NewPermutation(key, length)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPermutationIsABijectionOnWholeDomains(t *testing.T) {
	for _, size := range []uint64{2, 3, 4, 5, 16, 17, 62, 63, 64, 65, 255, 256, 257, 62 * 62, 62 * 62 * 62} {
		p, seen := newPermutation(testKey, size), make([]bool, size)
		for ordinal := range size {
			value := p.Value(ordinal)
			if value >= size || seen[value] || p.Ordinal(value) != ordinal {
				t.Fatalf("size %d: ordinal %d has value %d, whose ordinal is %d", size, ordinal, value, p.Ordinal(value))
			}
			seen[value] = true
		}
	}
}

func TestPermutationRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var key Key
		key.Version = rapid.Uint32Min(1).Draw(t, "version")
		copy(key.Secret[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "secret"))
		p, err := NewPermutation(key, rapid.IntRange(MinLength, MaxSequential).Draw(t, "length"))
		if err != nil {
			t.Fatal(err)
		}
		ordinal := rapid.Uint64Max(p.Size()-1).Draw(t, "ordinal")
		value := p.Value(ordinal)
		if value >= p.Size() || p.Ordinal(value) != ordinal {
			t.Fatalf("%d has value %d, whose ordinal is %d", ordinal, value, p.Ordinal(value))
		}
	})
}

// The codes of a key are a persistent protocol: these were drawn when it was fixed and must never change.
func TestPermutationVectors(t *testing.T) {
	for length, want := range map[int][3]string{
		5:  {"yQuca", "gs0OA", "YhtWB"},
		6:  {"2Bv2yH", "5mOEqp", "krLklS"},
		7:  {"4TOeuQK", "lhXaQab", "zPZlZiJ"},
		8:  {"aZ1ibffr", "eUGFLNKq", "vIWCdSLc"},
		9:  {"TuxPkR69Q", "VW7IXxZw2", "ErUfGw2aR"},
		10: {"dhP3JUSDOO", "uEklYEnpFK", "1S78ZGF12F"},
	} {
		p := mustPermutation(t, testKey, length)
		for i, ordinal := range []uint64{0, 1, p.Size() - 1} {
			if got := string(appendCode(nil, p.Value(ordinal), length)); got != want[i] {
				t.Errorf("length %d: ordinal %d has code %s, want %s", length, ordinal, got, want[i])
			}
		}
	}
}

func TestPermutationDependsOnEverything(t *testing.T) {
	other := testKey
	other.Secret[15]++
	newer := testKey
	newer.Version++
	base := mustPermutation(t, testKey, 7)
	for name, p := range map[string]*Permutation{"secret": mustPermutation(t, other, 7), "version": mustPermutation(t, newer, 7)} {
		same := 0
		for ordinal := range uint64(1000) {
			if p.Value(ordinal) == base.Value(ordinal) {
				same++
			}
		}
		if same > 0 {
			t.Errorf("another %s gives %d equal values of 1000", name, same)
		}
	}
	short, long := mustPermutation(t, testKey, 9), mustPermutation(t, testKey, 10)
	if short.round(0, 1) == long.round(0, 1)&short.mask {
		t.Error("lengths share their round function")
	}
}

// Neighbours must not show: the mean distance of the values of consecutive ordinals is a third of the domain if they are
// independent.
func TestPermutationHidesOrder(t *testing.T) {
	for length := MinLength; length <= MaxSequential; length++ {
		p, sum := mustPermutation(t, testKey, length), 0.0
		const n = 20000
		for ordinal := range uint64(n) {
			a, b := p.Value(ordinal), p.Value(ordinal+1)
			sum += float64(max(a, b)-min(a, b)) / float64(p.Size())
		}
		if mean := sum / n; mean < 0.325 || mean > 0.342 {
			t.Errorf("length %d: mean distance %.4f", length, mean)
		}
	}
}

func TestPermutationRefuses(t *testing.T) {
	for _, length := range []int{-1, 0, 4, 11} {
		if _, err := NewPermutation(testKey, length); !errors.Is(err, ErrLength) {
			t.Errorf("length %d: %v", length, err)
		}
	}
	if _, err := NewPermutation(Key{}, 7); !errors.Is(err, ErrNoKey) {
		t.Errorf("no key: %v", err)
	}
}

func BenchmarkPermutation(b *testing.B) {
	p := mustPermutation(b, testKey, 7)
	b.ReportAllocs()
	for ordinal := uint64(0); b.Loop(); ordinal++ {
		p.Value(ordinal)
	}
}
