// Package commands holds what may be asked of Hoplog and how it is decided: the deciders of links and of control, each two
// pure functions and a zero value, and the rules that a command's content must keep.
//
// Invariant: a decision depends on the state of one bucket, the command and its stamp, and on nothing else, so that two
// writers that see the same decide the same. The package does no I/O, reads no clock and draws no random numbers; of the
// project it imports schemas and events, never the read side.
package commands
