package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/dchest/siphash"
)

// clickVisitors turns addresses and user agents into visitor numbers: SipHash-2-4 keyed with the day's salt.
//
// The salt of a UTC day is HMAC-SHA-256(secret, "hoplog visitor salt " + date), so all nodes with one secret agree on it
// without talking, and numbers of different days cannot be compared by anyone without the secret. Who has the secret can
// compute any day's salt again: keep it apart from the log. It is not safe for concurrent use.
type clickVisitors struct {
	secret []byte
	day    int64 // days since 1970 that k0 and k1 are of
	k0, k1 uint64
	input  []byte
}

const clickDayUS = int64(24 * time.Hour / time.Microsecond)

func newClickVisitors(secret []byte) *clickVisitors {
	return &clickVisitors{secret: secret, day: -1}
}

// number returns the visitor number of a click at that time; 0 means unknown.
func (v *clickVisitors) number(timeUS int64, address netip.Addr, userAgent []byte) uint64 {
	if !address.IsValid() {
		return 0
	}
	v.turnTo(timeUS / clickDayUS)
	full := address.As16()
	v.input = append(append(v.input[:0], full[:]...), userAgent...)
	return max(1, siphash.Hash(v.k0, v.k1, v.input))
}

func (v *clickVisitors) turnTo(day int64) {
	if v.day == day {
		return
	}
	mac := hmac.New(sha256.New, v.secret)
	mac.Write([]byte("hoplog visitor salt " + time.UnixMicro(day*clickDayUS).UTC().Format(time.DateOnly)))
	salt := mac.Sum(nil)
	v.day, v.k0, v.k1 = day, binary.LittleEndian.Uint64(salt), binary.LittleEndian.Uint64(salt[8:])
}
