// Package links answers what is known of one link, by its name: as it is, as it was, and its history; which links an owner has:
// pages by age, filtered by text, tag, domain and status, and the tags in use with how many links have each; and what became of
// a request, by its owner and key.
//
// Invariants: a link is the fold of its history, and all that is known of it changes with the same commit. It stands exactly
// once in its owner's list, under each of its tags once, and in the counts of its tags; a tombstone stands in the list alone.
// One page costs a bounded number of rows, whatever the filter. A stored outcome is never overwritten by a repeat of its
// request.
//
// It must not import the gateway.
package links
