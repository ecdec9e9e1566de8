package projections_test

import (
	"slices"
	"testing"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

// The right hash under a wrong sequence extends nothing.
func TestSentence1AuditComparesTheSequence(t *testing.T) {
	h := given(t)
	last := len(h.entries) - 1
	rewrite(t, h.entries, last, func(e *pb.Envelope) { e.Seq++ })
	if found := kinds(verify(t, h.entries, int64(len(h.entries)), h.commands)); !slices.Contains(found, projections.ProblemChain) {
		t.Fatalf("found %v", found)
	}
}
