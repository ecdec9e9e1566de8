// Package attendance makes members of consumer groups leave whom the embedded broker would keep for ever.
//
// The broker starts a member's session when it answers the member's JoinGroup or SyncGroup, and only if the connection still
// stands. A process that dies while it waits for the answer to its first JoinGroup has no session that could end: it gets
// partitions that nobody else gets until the broker starts again, and every later rebalance waits for it. Apache Kafka starts
// the session in either case.
//
// Invariant: only a member that took part in the classic protocol is made to leave, and only when it said nothing for longer
// than the protocol allows where it stands: its session in a group that is stable for so long, the time after which it would
// have joined again in one that waits for its members. It must not import anything of this module.
package attendance
