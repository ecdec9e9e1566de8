// Package virtualkafka is a broker on a network that exists in memory, for tests that run in a bubble of testing/synctest:
// the embedded broker's engine with a data directory and the roll of its group members, and between it and each process a
// network that a test can slow, hold, cut and crash, request by request.
//
// Invariants:
//   - Bytes of a connection arrive in order or not at all. A request that was handed to the network may arrive after its
//     sender has given up and closed the connection, as with TCP; then nobody hears the answer.
//   - What the broker acknowledged it has after Restart, of either kind.
//   - All randomness comes from the generators that a test hands in, all time from the bubble's clock.
//
// Build with the tag synctests, which makes the Kafka client's locks ones that such a bubble can see. Of this module it
// imports nothing but what attends the embedded broker.
package virtualkafka
