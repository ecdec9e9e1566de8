package gateway

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hoplog/hoplog/commands"
)

// maxTags is how many entity tags an If-Match may list.
const maxTags = 100

// ifMatch is what If-Match demands of what a write changes: the version, or one of the others; 0 for any.
type ifMatch struct {
	version uint64
	or      []uint64
}

// parseIfMatch reads If-Match. It compares strongly (RFC 9110, 13.1.1): tags that are weak, or none of ours, match no version.
func parseIfMatch(given *string) (ifMatch, error) {
	if given == nil || *given == "*" {
		return ifMatch{}, nil
	}
	tags, wellFormed := entityTags(*given)
	if !wellFormed || len(tags) == 0 || len(tags) > maxTags {
		return ifMatch{}, invalid(headerIfMatch, fmt.Sprintf(`If-Match must be *, or an ETag such as "3" with its quotes, or a list of at most %d of them`, maxTags))
	}
	var versions []uint64
	for _, tag := range tags {
		version, err := strconv.ParseUint(strings.Trim(tag, `"`), 10, 64)
		if err == nil && version != 0 && tag == etag(version) {
			versions = append(versions, version)
		}
	}
	if len(versions) == 0 {
		return ifMatch{version: commands.NoVersion}, nil
	}
	slices.Sort(versions) // the same demand in another order is the same request
	versions = slices.Compact(versions)
	return ifMatch{versions[0], versions[1:]}, nil
}

// entityTags splits a list of entity tags (RFC 9110, 8.8.3 and 5.6.1) of which each keeps its quotes and its W/.
func entityTags(list string) (tags []string, wellFormed bool) {
	for {
		list = strings.TrimLeft(list, " \t,")
		if list == "" {
			return tags, true
		}
		rest, quoted := strings.CutPrefix(strings.TrimPrefix(list, "W/"), `"`)
		opaque, rest, closed := strings.Cut(rest, `"`)
		if !quoted || !closed || strings.ContainsFunc(opaque, func(r rune) bool { return r <= ' ' || r == 0x7F }) {
			return nil, false
		}
		tags = append(tags, list[:len(list)-len(rest)])
		list = strings.TrimLeft(rest, " \t")
		if list != "" && list[0] != ',' {
			return nil, false
		}
	}
}
