// Package h2 serves HTTP/2 (RFC 9113) on one connection for answers that are short and at once there: requests are answered in
// the order in which they come, by the goroutine that reads them, as soon as their heads have come; bodies are thrown away.
// Frames and HPACK are golang.org/x/net/http2's; the server of net/http is not used because it judges paths before anybody is
// asked (a broken escape, which is a 404 in HTTP/1.1, ends in a reset that clients try again), and because it needs a goroutine
// and a request of its own kind for each stream.
//
// Invariant: what one client can make a connection hold is bounded (MaxStreams, maxUnsent, and one head, which is
// forgotten when it is answered), no stream is answered twice or hears anything after its end, every stream and every idle time
// has an end, and the handler sees requests in the form of http1, no header twice where http1 has it once.
//
// It must not import net/http or anything of this module but http1.
package h2
