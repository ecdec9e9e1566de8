// Package redirects answers what a visitor of a route key meets: the compact record of every link in Pebble, and the
// records that were asked for lately in memory in front of it.
//
// Invariant: a record in memory never outlives a commit that changed it. It is filled with its shard locked, reading
// included, and dropped with its shard locked after each commit, before anybody who waits for the commit is woken.
//
// It must not import the gateway.
package redirects
