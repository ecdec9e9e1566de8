// Package mint makes the identities of new links: ids from leased segments, codes that stand for ids or are random, and
// pools that sort candidate codes by the bucket they route to, so that a writer can answer "a code of this bucket" at
// once.
//
// Invariant: an id is handed out once. Segments of different lives never overlap (the Leaser's promise), a life never
// goes back within its segments, and what a life does not hand out is burnt with it. Codes may repeat (keys rotate, chance
// repeats); the caller, who knows what is taken in its bucket, draws again.
//
// The package knows no log: leases come through an interface. It imports events and the limits of commands, and must not import commands/handler or
// anything of the read side.
package mint
