// Package systemtest tests the built binary from outside, as its users meet it: processes, HTTP, the command line, signals.
//
// Invariant: it talks to bin/hoplog (or $HOPLOG_BIN) through what users have, and imports nothing of the project but the
// harnesses of a real Kafka and of a ClickHouse engine, and the client of the log where a test damages it.
package systemtest
