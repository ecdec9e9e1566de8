package commands

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// Every version of a cowMap stays what the plain map of the same moment is.
func TestCowMapIsAMapAtEveryMoment(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var now cowMap[int]
	plain := map[string]int{}
	type moment struct {
		cow   cowMap[int]
		plain map[string]int
	}
	var moments []moment
	for step := range 4000 {
		key := fmt.Sprint(random.IntN(600))
		if random.IntN(3) == 0 {
			now = now.without(key)
			delete(plain, key)
		} else {
			now = now.with(key, step)
			plain[key] = step
		}
		if step%400 == 0 {
			moments = append(moments, moment{now, maps.Clone(plain)})
		}
	}
	for i, m := range append(moments, moment{now, plain}) {
		found := map[string]int{}
		m.cow.each(func(key string, v int) bool { found[key] = v; return true })
		if !maps.Equal(found, m.plain) || m.cow.count != len(m.plain) {
			t.Errorf("moment %d: %d entries, %d counted, want %d", i, len(found), m.cow.count, len(m.plain))
		}
		for n := range 600 {
			key := fmt.Sprint(n)
			want, has := m.plain[key]
			v, ok := m.cow.get(key)
			w, too := m.cow.getBytes([]byte(key))
			if v != want || w != want || ok != has || too != has {
				t.Fatalf("moment %d, %s: %d %v %d %v, want %d %v", i, key, v, ok, w, too, want, has)
			}
		}
	}
	var empty cowMap[int]
	if _, ok := empty.get("x"); ok || empty.without("x").count != 0 {
		t.Error("the empty map holds something")
	}
	first := 0
	now.each(func(string, int) bool { first++; return false })
	if first != 1 {
		t.Errorf("each went on %d times after it was told to stop", first)
	}
}
