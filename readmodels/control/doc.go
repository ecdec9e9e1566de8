// Package control holds the fold of the control log in memory, for everybody who must know domains, keys and words without
// waiting.
//
// Invariant: what Current returns is one state of the log, never changed and never older than what an earlier call
// returned. A store on the disk keeps the accepted envelopes themselves, with their positions, and folds them at the start: so
// a process that starts without the log knows what it knew, and no second form of the state has to be kept right.
//
// It must not import the gateway.
package control
