package app

import (
	"os"
	"path/filepath"
	"time"

	"github.com/hoplog/hoplog/gateway"
)

// clickConfig is how this node's clicks are recorded.
func (n *node) clickConfig() gateway.ClickConfig {
	config := gateway.ClickConfig{Node: n.GetString("node"), Region: n.GetString("region"), Partitions: n.count,
		VisitorSecret: []byte(n.GetString("visitor-secret")), MaxAge: oldestClicks(n.GetDuration("click-retention"))}
	if bytes := n.GetInt64("spool-bytes"); bytes > 0 {
		config.Spool = filepath.Join(n.dir("clicks"), "spool")
		config.MaxBytes = n.spoolBytes(config.Spool, bytes)
	}
	return config
}

// oldestClicks is how long a click may wait in a spool: what the log has of its neighbours must still be there for a
// reconciliation. No bound for a retention that is not longer than the margin.
func oldestClicks(retention time.Duration) time.Duration {
	const margin = 24 * time.Hour
	return max(0, retention-margin)
}

// spoolBytes cuts the size of the spool on a small or full disk: a file that is made or grows may take half of what is free
// above the reserve. What a file takes already it keeps.
func (n *node) spoolBytes(path string, wanted int64) int64 {
	var there int64
	if info, err := os.Stat(path); err == nil {
		there = info.Size()
	}
	free, reserve := n.disk.guard.Free(), n.disk.guard.Reserve()
	var spare int64
	if free > reserve {
		spare = int64((free - reserve) / 2)
	}
	if room := there + spare; wanted > room {
		n.logger.Warn("the disk has no room for the click spool that was asked for", "bytes", wanted, "possible", room)
		return max(1, room)
	}
	return wanted
}
