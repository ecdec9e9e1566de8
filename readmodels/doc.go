// Package readmodels holds the questions that are asked of Hoplog and the shapes of their answers.
//
// Invariant: an answer is a function of a read model's records and the question alone. The package is pure: it does no
// I/O, reads no clock and draws no random numbers; its sub-folders, one store each, do the talking. It must not import
// the gateway.
package readmodels
