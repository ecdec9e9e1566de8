// Package handler is the single writer: per partition it replays the events, scans the commands, stamps and decides them,
// appends their envelopes and confirms the append, as the chain rule says (ARCHITECTURE.md, "The chain rule").
//
// Invariant: what it merges into its confirmed state is what every reader accepts. The state can be thrown away at any
// time; the log gives it again. The package imports events, eventlog, commands and mint, never the read side.
package handler
