// Package schemas holds the contracts of Hoplog: protobuf messages, the description of the HTTP API, and the vectors that
// other implementations check themselves by. Files that a running binary needs are embedded here.
//
// Invariant: what is here is the source; generated code follows it. The package does no I/O and must not import anything of
// the project.
package schemas
