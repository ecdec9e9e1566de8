package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"
)

// clickVisitors turns addresses and user agents into visitor numbers: SipHash-2-4, keyed with the day's salt, of the address
// and the first half of the User-Agent's SHA-256, which is known already for agents that come often.
//
// The salt of a UTC day is HMAC-SHA-256(secret, "hoplog visitor salt " + date), so all nodes with one secret agree on it
// without talking, and numbers of different days cannot be compared by anyone without the secret. Who has the secret can
// compute any day's salt again: keep it apart from the log. Safe for concurrent use.
type clickVisitors struct {
	secret []byte
	salt   atomic.Pointer[clickSalt]
}

type clickSalt struct {
	day    int64 // days since 1970
	k0, k1 uint64
}

const clickDayUS = int64(24 * time.Hour / time.Microsecond)

func newClickVisitors(secret []byte) *clickVisitors { return &clickVisitors{secret: secret} }

// number returns the visitor number of a click at that time; 0 means unknown.
func (v *clickVisitors) number(timeUS int64, address netip.Addr, agent [16]byte) uint64 {
	if !address.IsValid() {
		return 0
	}
	salt := v.saltOf(timeUS / clickDayUS)
	var input [32]byte
	full := address.As16()
	copy(input[:], full[:])
	copy(input[16:], agent[:])
	return max(1, siphash.Hash(salt.k0, salt.k1, input[:]))
}

func (v *clickVisitors) saltOf(day int64) *clickSalt {
	if salt := v.salt.Load(); salt != nil && salt.day == day {
		return salt
	}
	mac := hmac.New(sha256.New, v.secret)
	mac.Write([]byte("hoplog visitor salt " + time.UnixMicro(day*clickDayUS).UTC().Format(time.DateOnly)))
	sum := mac.Sum(nil)
	salt := &clickSalt{day: day, k0: binary.LittleEndian.Uint64(sum), k1: binary.LittleEndian.Uint64(sum[8:])}
	v.salt.Store(salt)
	return salt
}
