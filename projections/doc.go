// Package projections holds the folds from accepted envelopes to the records of the read models.
//
// Invariant: a record is a function of its link's events and their stamps, in order, and of nothing else, so folding the
// same log again gives the same bytes. The package is pure: it does no I/O, reads no clock and draws no random numbers; of
// the project it imports schemas, events and commands, never a read model.
package projections
