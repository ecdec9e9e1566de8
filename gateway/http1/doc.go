// Package http1 reads HTTP/1.1 requests (RFC 9112) as strictly as a redirect can afford: it takes the head of a request off
// the bytes that have come, finds the end of its body, and says what must be refused.
//
// Invariants:
//   - Pure: no I/O, no clock. Reading a head allocates nothing once the Request has been used for one like it.
//   - What two readers could take for different requests is refused, never guessed: bare LF, folded lines, a space before a
//     colon, repeated Host, a length beside an encoding. Where this package and net/http disagree, differential_test.go says
//     why.
//   - All that a Request points at lies in the bytes that Parse was given.
//
// It must not import anything of this module.
package http1
