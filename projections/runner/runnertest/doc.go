// Package runnertest makes logs of envelopes for the tests of projections and read models: chained as a writer chains them,
// in memory or shipped to an embedded broker.
//
// Invariant: what it appends without saying otherwise is accepted by every reader. It is for tests only, and must not
// import readmodels or gateway.
package runnertest
