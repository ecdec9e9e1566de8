package projections_test

import (
	"slices"
	"testing"

	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/schemas/pb"
)

func TestListing(t *testing.T) {
	link := func(owner string, deleted bool, tags ...string) *pb.Link {
		return &pb.Link{Ref: &pb.LinkRef{Owner: owner, LinkId: 7}, CreatedUs: 5, Deleted: deleted, Content: &pb.LinkContent{Tags: tags}}
	}
	for _, c := range []struct {
		name          string
		before, after *pb.Link
		same          bool
		gone, come    []string
	}{
		{"created", nil, link("acme", false, "a", "b"), false, nil, []string{"a", "b"}},
		{"created without tags", nil, link("acme", false), false, nil, nil},
		{"tags changed", link("acme", false, "a", "b"), link("acme", false, "b", "c"), true, []string{"a"}, []string{"c"}},
		{"tags in another order", link("acme", false, "a", "b"), link("acme", false, "b", "a"), true, nil, nil},
		{"deleted", link("acme", false, "a"), link("acme", true, "a"), true, []string{"a"}, nil},
		{"another owner", link("acme", false, "a"), link("other", false, "a"), false, []string{"a"}, []string{"a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, after := projections.ListingOf(c.before), projections.ListingOf(c.after)
			if got := before.SamePlace(after); got != c.same {
				t.Errorf("same place: %v", got)
			}
			if gone := before.Without(after); !slices.Equal(gone, c.gone) {
				t.Errorf("gone %q, want %q", gone, c.gone)
			}
			if come := after.Without(before); !slices.Equal(come, c.come) {
				t.Errorf("come %q, want %q", come, c.come)
			}
		})
	}
}
