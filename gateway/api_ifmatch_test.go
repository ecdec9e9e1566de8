package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/hoplog/hoplog/commands"
)

func TestParseIfMatch(t *testing.T) {
	any, none := ifMatch{}, ifMatch{version: commands.NoVersion}
	one := func(version uint64, or ...uint64) ifMatch { return ifMatch{version, or} }
	for given, want := range map[string]ifMatch{
		"*": any, `"3"`: one(3), `"3", "4"`: one(3, 4), `"4","3"`: one(3, 4), `"3" , "3"`: one(3), ", \"3\"\t,,": one(3), `"18446744073709551615"`: none,
		`W/"3"`: none, `W/"3", "4"`: one(4), `"a,b", "3"`: one(3), `"3", "x"`: one(3), `"x"`: none, `""`: none, `"0"`: none, `"03"`: none, `"+3"`: none, `"-1"`: none,
		`"18446744073709551616"`: none, `W/"", "W/"`: none, `"*"`: none, `"é"`: none, strings.Repeat(`"3",`, maxTags): one(3),
	} {
		got, err := parseIfMatch(&given)
		if err != nil || got.version != want.version || !slices.Equal(got.or, want.or) {
			t.Errorf("%.40s: %v, %v, wanted %v", given, got, err, want)
		}
	}
	if got, err := parseIfMatch(nil); err != nil || got.version != 0 || got.or != nil {
		t.Errorf("without: %v, %v", got, err)
	}
	for _, bad := range []string{
		"", " ", ",", "3", `3"`, `"3`, `"`, `'3'`, `w/"3"`, `W/3`, `W/ "3"`, `W/W/"3"`, `W/`, `W/*`, "**", `*, "3"`, `"3", *`, `"3" "4"`, `"3""4"`, `"3"; "4"`, `"3", 4`, `"a b"`,
		"\"\x7f\"", strings.Repeat(`"3",`, maxTags+1),
	} {
		if got, err := parseIfMatch(&bad); err == nil {
			t.Errorf("%.40q is taken: %v", bad, got)
		}
	}
}
