// Package eventloop serves HTTP/1.1 connections from a few loops over epoll, each locked to a thread of its own and never
// waiting for anything but its own sockets: what answers thousands of short requests with two system calls each.
//
// Invariants:
//   - A connection belongs to one loop, which alone reads, writes and closes it. Requests of a connection are answered in
//     order, and those that came with one read with one write.
//   - A loop never waits for a reader, for a disk or for a lock that is held while waiting. What the handler cannot answer at
//     once goes to a worker, and the connection stands still meanwhile.
//   - What a client can make a loop keep is bounded: the head of one request, the answers to one read, and of all connections
//     together what waits of requests and of answers. A connection between requests keeps no buffer.
//   - Each connection has a deadline at any time.
//
// While a server serves, GOMAXPROCS is higher by its loops than what the runtime or the operator chooses.
//
// It runs on Linux. It must not import the gateway, which it does not know.
package eventloop
