// Package redirects answers what a visitor of a route key meets: the compact record of every link in Pebble, the records
// that were asked for lately in memory in front of it, and a filter that knows of most unknown keys that they are unknown.
//
// Find goes through what is in memory, never waits and takes no lock; Load reads the store, bounded and merged.
//
// Invariants:
//   - A record in memory never outlives a commit that changed it. Each fill has a flight that is registered before the store
//     is read; a commit, before anybody who waits for it is woken, replaces what is in memory and takes a flight of the key off
//     the list, so that what it brings is neither kept nor given to anybody who asks later. An older version never replaces a
//     newer one.
//   - A key that the store holds, and whose commit was announced, is never called unknown: the filter learns of a key after
//     the commit that brings it and before its announcement, also while the keys of the store are being read.
//   - What nodes share (Config.Shared) is asked within a flight, after the store, by a store that may be behind the log; the
//     newer of the two is the answer, and what only they know is not kept.
//   - Whatever strangers ask for, memory stays within Config.Memory and the filter's two bytes a link.
//
// It must not import the gateway.
package redirects
