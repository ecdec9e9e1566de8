// Package simulation runs the write side and its readers in one bubble of virtual time, with everything going wrong that may:
// the real handlers, API, projections and read models on a virtual broker and network, with stores in memory that crash.
// One seed is one schedule of faults and requests; `make simulate` runs many.
//
// Invariants that it holds the product to, at every answer and whenever the world is at rest:
//   - Nothing that was acknowledged is lost: every command in the log has exactly one accepted envelope.
//   - Answers, and everything that can be read, are what an independent fold of the log says at the position they name.
//   - One key makes one link. A request that is repeated within seven days meets the outcome that it met before.
//   - All stores end as a store that folds the log anew, bucket by bucket.
//
// It holds tests only, under the build tag synctests. What a seed fixes is the faults, the requests, the latencies and all
// that is drawn from crypto/rand; what it cannot fix is the order in which goroutines run that wake at one instant, and the
// runtime's choice among ready cases of a select and in walks over maps. Most failing seeds fail again; some need several tries.
package simulation
