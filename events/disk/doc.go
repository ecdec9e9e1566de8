// Package disk is what a process's parts need of the local disk beside the log: opening a store that can be made again from
// the log although it is damaged, and watching that there is room left.
//
// Invariants:
//   - A store never answers from bytes that its checksums do not confirm, and damage never ends the process: who reads gets
//     an error, the damage is reported with store and file, and the next open begins a new store, the old one kept beside it.
//   - Nobody writes into the last bytes of a disk: see Guard.
//
// It knows nothing of what the stores hold. It must not import the log or anything below.
package disk
