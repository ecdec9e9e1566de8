// Package shared is the tier that redirect nodes may share: compact link records in Redis, in front of which each node keeps
// what it reads by Redis's own client-side caching (tracked, so that a change takes it away again).
//
// What it is for. A node has the whole map in Pebble, and a look-up there is cheaper than the way to any Redis. Measured by
// BenchmarkLookup, 16 workers on two busy cores, Redis on the loopback, half of the look-ups within, and processor time of
// the node: Pebble 3 µs and 3.5 µs, Redis 315 µs and 16 µs, what client-side caching has 3 µs and 4.6 µs. So a node whose
// map stands at the log's end never asks Redis. It asks on a miss of memory, after Pebble, while its own map may be old: on
// its first reading of the log, after its disk was lost, when its reader stopped, when it is cut off from the log. Then it
// serves from Redis what it does not have, and the newer of the two where it has something. A slow disk is no reason: that
// Redis is not older than what the node has applied can only be told by reading the disk.
//
// Invariants:
//   - Of two versions of a link the newer stays, whoever writes and whenever it arrives: one script compares and writes.
//     Nothing is deleted, so a late fill does not find the place empty; but where Redis has no room for a newer record, the
//     older goes. A fill that was longer than fillWithin on its way is refused by Redis's own clock: it may have missed a
//     record that Redis has meanwhile lost.
//   - A node never answers with less than what its own store has applied, whatever Redis says; see redirects.Config.Shared.
//   - There are no entries for links that do not exist. That Redis knows none is remembered by client-side caching only, from
//     where the write that creates it removes it.
//   - What is not of our form, or is not of its key, is no answer, and is overwritten.
//   - Redis may be dead, slow, full or empty: a question costs at most Config.Timeout, a few of them open a breaker, and from
//     then on none costs anything until a probe in the background was answered in time. Fills never wait.
//
// What remains. Redis is trusted: who writes there can lead visitors astray. A Redis that lost its memory, or went over to a
// replica that lagged, may hold an older version than it once took, until an event, a fill or the end of its life brings the
// newer; only a node that is behind serves that, and only until its own map has reached it. Without the effects role nobody tells
// Redis of edits of links that no node holds in memory.
//
// It must not import the gateway.
package shared
