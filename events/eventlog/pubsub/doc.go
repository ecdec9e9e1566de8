// Package pubsub is Watermill's Publisher and Subscriber over the log, for side effects: a handler per message, retries and
// dead letters come from Watermill's router.
//
// Invariants:
//   - At least once. A position of a group moves past a record only when it and all before it in its partition are
//     acknowledged, or ask for nothing.
//   - Each partition has one queue. Messages leave it in offset order; with a window of one, which is the default, none leaves
//     before the one before it is acknowledged. A message that is refused (Nack) comes again, as a new message.
//   - A partition is given to another member only after every message of it is acknowledged or given back: its context is done,
//     and what its handler says afterwards counts for nothing.
//   - Memory is bounded by partitions: what waits in a queue, and a window of messages.
//
// State is never folded from here: one acknowledgement per message costs too much, and positions of a group are not kept with
// the state. It must not import commands, projections, readmodels or gateway.
package pubsub
