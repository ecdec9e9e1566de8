// Package bench measures Hoplog on this machine: load scenarios, the limits that stand beside their figures in the same run,
// and results that name the machine. A scenario starts the processes it measures, or is pointed at running ones, and checks
// that what it loaded was done right: a figure with wrong answers in it is an error.
//
// Invariant: load goes to loopback addresses only. The package must not import gateway/app; it knows the product by its
// addresses, but for the replay, whose fold it runs itself.
package bench
