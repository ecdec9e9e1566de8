// Package segments checks the files of the embedded broker before the broker opens them, because the broker itself cuts a
// file at the first batch that it cannot read, wherever that is, and drops what lies behind it without a word.
//
// Invariants:
//   - Only a torn tail is ever cut: bytes at the end of a partition's last segment that are no whole batch, with no good
//     batch behind them and nothing acknowledged in them. What is cut is copied first, and said.
//   - Any other damage is an error that names topic, partition, file, byte and offset, and leaves every file as it was found.
//   - What can be made again from the segments (indexes, snapshots) is made again, with a copy of what was found; it never
//     hinders a start.
//   - Memory is bounded by a segment per worker, whatever the log's size.
//
// It knows the broker's files and the layout of a record batch, nothing of clients, topics' meaning or envelopes. It must not
// import the Kafka client, eventlog or anything below.
package segments
