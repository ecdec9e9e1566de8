// Package runner drives a projection: it tails an events topic, applies the chain rule, folds what is accepted, and keeps
// the positions it has reached in the same store as the state, in one atomic step.
//
// Invariants:
//   - State and positions change together, so a store can be thrown back to any older commit of its own and goes on right.
//   - Nothing is skipped. What cannot be read (an alarm) or folded (poison) stops the runner before it, for good.
//   - Who waits for a position is woken after the state of that position can be read.
//
// A store is one directory with one projection in it. Commits are not synced: the log is the truth, a commit is whole or
// absent, and what a crash of the machine takes away is folded again.
//
// It must not import readmodels or gateway.
package runner
