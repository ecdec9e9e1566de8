package systemtest

import (
	"fmt"
	"math/rand"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Twenty rounds of kill -9 under load: nothing acknowledged is lost, one key makes one link, no code is given twice, the
// chains hold.
func TestKillUnderLoad(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	p := dev(t)
	var acked sync.Map // key → code
	var stop atomic.Bool
	var load sync.WaitGroup
	for worker := range 8 {
		load.Go(func() {
			for i := 0; !stop.Load(); {
				key := fmt.Sprintf("load-%d-%d", worker, i)
				a, err := p.tryAPI("POST", "/v1/links", fields{"target": "https://example.com/" + key}, "Idempotency-Key", key)
				if err == nil && (a.status == http.StatusCreated || a.status == http.StatusOK) {
					acked.Store(key, a.str("code"))
					i++
				} else {
					time.Sleep(10 * time.Millisecond) // the same key again: the outcome is unknown
				}
			}
		})
	}
	slowest := time.Duration(0)
	for range rounds {
		time.Sleep(time.Duration(200+rand.Intn(600)) * time.Millisecond)
		p.kill()
		began := time.Now()
		p.start()
		slowest = max(slowest, time.Since(began))
	}
	time.Sleep(300 * time.Millisecond)
	stop.Store(true)
	load.Wait()
	codes := map[string]string{}
	n := 0
	acked.Range(func(key, code any) bool {
		n++
		if other, twice := codes[code.(string)]; twice {
			t.Errorf("code %s was given to %s and %s", code, other, key)
		}
		codes[code.(string)] = key.(string)
		want := "https://example.com/" + key.(string)
		p.eventually(fmt.Sprint(key, " is served"), func() bool { return p.visit("/"+code.(string)).header.Get("Location") == want })
		return true
	})
	again := 0
	acked.Range(func(key, code any) bool {
		a := p.create(fields{"target": "https://example.com/" + key.(string)}, "Idempotency-Key", key.(string))
		if a.status != http.StatusOK || a.str("code") != code || a.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("key %s again: %d %s, was %s", key, a.status, a.raw, code)
		}
		again++
		return again < 500
	})
	t.Logf("%d rounds, %d acknowledged creates, slowest restart %s", rounds, n, slowest.Round(time.Millisecond))
	if n < rounds {
		t.Errorf("only %d creates were acknowledged", n)
	}
	var verify struct{ Problems []any }
	if code := p.cliJSON(&verify, "audit", "verify"); code != 0 || len(verify.Problems) > 0 {
		t.Errorf("audit verify: exit %d, %v", code, verify.Problems)
	}
}
