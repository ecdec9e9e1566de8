// Package events holds the facts of Hoplog: how a link is routed to its bucket, what an envelope is, and the chain rule by
// which every reader decides whether an envelope counts.
//
// Invariant: given the same records in the same order, every reader accepts the same envelopes. The package is pure: it
// does no I/O, reads no clock and draws no random numbers; it imports nothing of the project but schemas.
package events
