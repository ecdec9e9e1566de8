// Package deny decides on a redirect node who must not go where: by the lists and switches of the control log, and by how old
// these may be.
//
// Invariant: it never lets through what an entry that counts denies, and lets a link of low trust through only while the age
// of the lists is known to be below the bound. It takes no lock, does not allocate, and costs a comparison when there is no
// entry. It must not import the gateway.
package deny
