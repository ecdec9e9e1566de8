// Package attendance gives members of the embedded broker's consumer groups the sessions that they have on Apache Kafka.
//
// Two things differ there. The broker starts a member's session when it answers the member's JoinGroup or SyncGroup, and only
// if the connection still stands: a process that dies while it waits for the answer has no session that could end, and gets
// partitions that nobody else gets. And a session runs on while the member waits for such an answer: if it ends the member is
// dropped, and never answered. So whoever waits is vouched for with heartbeats, until the first look that finds the answer out:
// from there on it has one session, which it must extend itself.
//
// Invariant: nobody is vouched for for longer than the protocol lets a member wait. It must not import anything of this module.
package attendance
