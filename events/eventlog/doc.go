// Package eventlog is the only door to Kafka: topics, appending with an offset check, tailing from own positions, group
// membership for assignment, and the embedded broker of a single machine.
//
// Invariants:
//   - There is one client path. The embedded broker and a real Kafka are spoken to by the same code over TCP.
//   - A record is confirmed only if its answer came and named exactly the expected offset (compare-and-append).
//   - A tail starts where its caller says and never moves its position by itself: an offset that the log does not hold
//     is an error, not a reset.
//   - Offsets are kept by the readers, next to their state. Only side effects, which have none, keep theirs with a consumer
//     group (Consumer).
//   - The embedded broker opens no file that was not verified (segments), and writes none while the disk is full.
//
// It handles raw records and knows nothing of envelopes. It must not import commands, projections, readmodels or
// gateway, and no other package may import the Kafka client.
package eventlog
