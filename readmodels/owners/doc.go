// Package owners answers which links an owner has: pages by age, filtered by text, tag, domain and status, and the tags in
// use with how many links have each.
//
// Invariant: every link stands exactly once in its owner's index, under each of its tags once, and in the counts of its
// tags; a tombstone stands in the index alone. One page costs a bounded number of rows, whatever the filter.
//
// It must not import the gateway.
package owners
