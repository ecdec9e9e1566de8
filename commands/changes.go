package commands

import (
	"slices"

	"github.com/hoplog/hoplog/schemas/pb"
)

// ControlChange is one change of lists, switches, keys or settings of domains, as their history shows it.
type ControlChange struct {
	*pb.Event
	TimeUS int64
	Actor  string
	// Seq is the control position of its envelope.
	Seq uint64
}

// controlChanges are the newest changes, oldest first, in chunks: adding one copies the last chunk and the list of chunks.
type controlChanges struct{ chunks [][]*ControlChange }

// The history that is kept in memory: 256 chunks of 256. The log has all of it.
const (
	changeChunk  = 256
	changeChunks = 256
)

func (h controlChanges) with(change *ControlChange) controlChanges {
	chunks := slices.Clone(h.chunks)
	if last := len(chunks) - 1; last >= 0 && len(chunks[last]) < changeChunk {
		chunks[last] = append(slices.Clone(chunks[last]), change)
		return controlChanges{chunks}
	}
	if len(chunks) == changeChunks {
		chunks = chunks[1:]
	}
	return controlChanges{append(chunks, []*ControlChange{change})}
}

// Changes calls f with the changes of lists, switches, keys and settings of domains below a control position, newest first, until it returns false; 0:
// all. The newest 65,536 are known.
func (c *Control) Changes(before uint64, f func(*ControlChange) bool) {
	if c == nil {
		return
	}
	for _, chunk := range slices.Backward(c.changes.chunks) {
		for _, change := range slices.Backward(chunk) {
			if (before == 0 || change.Seq < before) && !f(change) {
				return
			}
		}
	}
}
