package projections

import (
	"slices"

	"github.com/hoplog/hoplog/schemas/pb"
)

// Listing is where a link stands in its owner's index: by age, and under each of its tags. A tombstone has no tags.
type Listing struct {
	Owner     string
	CreatedUS int64
	LinkID    uint64
	Tags      []string
}

// ListingOf returns a link's place; the zero Listing for nil, a link that does not exist yet.
func ListingOf(link *pb.Link) Listing {
	l := Listing{Owner: link.GetRef().GetOwner(), CreatedUS: link.GetCreatedUs(), LinkID: link.GetRef().GetLinkId()}
	if !link.GetDeleted() {
		l.Tags = link.GetContent().GetTags()
	}
	return l
}

// SamePlace reports whether two listings stand at the same place of the same owner, whatever their tags.
func (l Listing) SamePlace(other Listing) bool {
	return l.Owner == other.Owner && l.CreatedUS == other.CreatedUS && l.LinkID == other.LinkID
}

// Without returns the tags of l that other, at the same place, does not have; all of them if it is at another place.
func (l Listing) Without(other Listing) []string {
	if !l.SamePlace(other) {
		return l.Tags
	}
	var tags []string
	for _, tag := range l.Tags {
		if !slices.Contains(other.Tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}
