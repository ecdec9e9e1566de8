// Package clicks keeps every click in ClickHouse, raw and counted by minute, hour and day, and answers what is asked of
// clicks. It is the only package that speaks to ClickHouse; an embedded engine and a server are spoken to alike.
//
// Invariants:
//   - A block of clicks counts once, in the raw rows and in every aggregate, however often its insert is tried.
//   - An aggregate is what counting the raw rows again gives; it can be thrown away. Raw rows can be inserted again from
//     the log.
//   - An answer counts whole clicks exactly: nothing is sampled or estimated.
//
// The recount for reconciling shares no code with the fold that fills the tables. The package must not import the gateway.
package clicks
