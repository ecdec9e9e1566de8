// Package control holds the fold of the control log in memory, for everybody who must know domains, keys and words without
// waiting.
//
// Invariant: what Current returns is one state of the log, never changed and never older than what an earlier call
// returned. It is folded from the beginning at every start: the control log is small.
//
// It must not import the gateway.
package control
