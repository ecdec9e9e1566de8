// Package app is the composition root: the settings, the sub-commands of the binary, and the processes with the order in
// which their parts start and stop. Nothing but main imports it.
//
// Invariant: every part of a process is made here and handed what it needs; no other package reads a setting.
package app
