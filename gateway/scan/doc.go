// Package scan tells sources that guess codes from those that follow links.
//
// A source is an IPv4 address or an IPv6 /64, and beside it the /24 or /48 around it, which may do sixteen times as much. Each
// has two counts that decay over a minute: unknown codes, and links it followed, both without what it asked for just before. So
// a mail with one broken link counts once for the whole address that its readers share. Guesses up to the limit, and half as many
// as links were followed, are answered as ever.
//
//   - Above that a source is slowed: what it guesses is refused until the count has decayed, so that who heeds Retry-After
//     gets through at the limit's rate. Links go on.
//   - Above twice that it is closed: each link answered now would tell a guesser that it exists, so that refusing guesses
//     alone would slow nobody down. Links still go on that the source followed just before, and new ones at the rate at which
//     it followed links so far, or ten a minute. So who shares an address with a guesser goes on, and the guesser learns no
//     more than that rate, however many codes it tries. Beyond it links and guesses are refused alike, the store unasked.
//
// Links that a source knows give it no credit without bound: of its last sixteen none counts again, and the count of links is
// bounded. A guesser closes nobody but itself: what is refused does not count against its network. A distributed scan meets the
// /24 and /48, and, once the answered guesses of all are above a limit of their own, an eighth of the limit for each source.
//
// Nothing is delayed: a delay would hold one of our connections for each guess of theirs, and a guesser has more connections
// than a node.
//
// Invariants:
//   - The table is of fixed size, allocated once. Whom it has no room for takes the place of the neighbour with the least guesses.
//   - A visit that finds a link reads one word while nobody guesses, a bitmap of 16 KiB while others do, and the table only where
//     its own source does.
//
// It does not know HTTP nor where addresses come from, reads no clock, and must not import the gateway.
package scan
