// Package links answers what is known of one link, by its name: the record as it is, as it was, and its history; and what
// became of a request, by its owner and key.
//
// Invariant: a record is the fold of the history that stands beside it, and both change with the same commit. A stored
// outcome is never overwritten by a repeat of its request.
//
// It must not import the gateway.
package links
