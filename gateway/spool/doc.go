// Package spool keeps the clicks of a redirect node that the log has not acknowledged, in a file that is mapped into memory.
//
// The file is a ring of segments of one size under a bound that is allocated in full before it is mapped: what was copied
// into it survives the end of the process (kill -9), for the pages belong to the kernel, and no full disk can take a page
// away later. What a power cut leaves is found by checksum; the last seconds may be missing. A segment is taken, filled by
// one writer at a time, and given back when its clicks are in the log; nothing that is kept is ever overwritten, so a full
// spool refuses new clicks, not old ones.
//
// Invariant: a segment found at a start holds a prefix of what was committed to it, or is counted as damaged.
//
// The package knows nothing of what a click is. It must not import the gateway, a read model or the log.
package spool
