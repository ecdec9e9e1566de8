package app

import (
	"os"
	"runtime/debug"
	"slices"
)

const (
	mib = 1 << 20
	// defaultCache is the block cache of a process, devCache that of one which shares its machine with a developer.
	defaultCache = 256 * mib
	devCache     = 64 * mib
	// defaultHot is what the links in memory of a redirect node take, a million of them; devHot that of a dev process.
	defaultHot = 128 * mib
	devHot     = 64 * mib
	// devLimit is from where on the collector of a dev process works harder rather than let the heap double. It is no bound: a
	// log of many millions of links needs more, and GOMEMLIMIT says how much it may be.
	devLimit = 384 * mib
	// collectAt is by how many percent the heap may grow between collections. At the default of 100 they took an eighth of the
	// processor time of creating links in batches.
	collectAt = 300
	// collectServingAt is the same for a process that does nothing but serve redirects and follows the log's end. It makes garbage
	// where links are not in memory, a block of the cache for each; what lives is that cache, as a rule, and costs the collector
	// nothing. With 3 M links and a twentieth of them in memory: 0.8 GB instead of 1.4 for the same processor time.
	collectServingAt = 100
)

// cacheBytes is the block cache that all stores of the process share.
func (n *node) cacheBytes() int64 {
	switch set := n.GetUint64("cache"); {
	case set > 0:
		return int64(set) * mib
	case n.dev:
		return devCache
	}
	return defaultCache
}

// hotBytes is what the links that a redirect node serves from memory may take.
func (n *node) hotBytes() int {
	switch set := n.GetInt(setHotLinks); {
	case set > 0:
		return set * mib
	case n.dev:
		return devHot
	}
	return defaultHot
}

// limitMemory lets the collector work less than it does by default, for most of a process's memory is not its concern
// (GOGC overrides), and keeps the heap of a dev process small all the same (GOMEMLIMIT overrides).
func (n *node) limitMemory() {
	collectRarely()
	if _, set := os.LookupEnv("GOMEMLIMIT"); n.dev && !set {
		debug.SetMemoryLimit(devLimit)
	}
}

func collectRarely() { collectAfter(collectAt) }

// collectServing is for when the process has caught up with the log.
func (n *node) collectServing() {
	if slices.Equal(n.roles, []string{roleRedirect}) {
		collectAfter(collectServingAt)
	}
}

// collectAfter sets by how many percent the heap may grow, unless GOGC does.
func collectAfter(percent int) {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(percent)
	}
}
