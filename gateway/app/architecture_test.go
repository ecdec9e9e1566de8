package app_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hoplog/hoplog"

// layers is the list of ARCHITECTURE.md's layout, top first: a package imports its own layer and those above,
// never one below. "x" is that folder alone, "x/..." also or only (where "x" has an entry of its own) all below it.
var layers = []string{
	"schemas/...",
	"events",
	"events/eventlog/...",
	"events/disk/...",
	"events/filter",
	"commands",
	"commands/mint/...",
	"commands/handler/...",
	"projections",
	"projections/runner/...",
	"readmodels",
	"readmodels/...",
	"gateway/http1",
	"gateway/proxyproto",
	"gateway/scan",
	"gateway/eventloop",
	"gateway/h2",
	"gateway/perconn",
	"gateway/spool/...", // what clicks wait in: the gateway is built on it
	"gateway",
	"gateway/...",
	".",
}

// pure packages do no I/O, read no clock and draw nothing at random; of this module they import each other
// (as far as layers allow), schemas and its generated code.
var pure = []string{"schemas", "events", "commands", "projections", "readmodels"}

// pureLibraries is what pure packages import from other modules: text, hashes, encodings and tables.
var pureLibraries = []string{
	"github.com/cespare/xxhash/v2",
	"github.com/dchest/siphash",
	"github.com/gaissmai/bart",
	"github.com/planetscale/vtprotobuf",
	"golang.org/x/net/idna",
	"golang.org/x/text",
	"google.golang.org/protobuf",
}

// impure is what pure packages must not import from the standard library, sub-packages included.
// context is here because a deadline is a clock.
var impure = []string{
	"context", "crypto/rand", "crypto/tls", "database/sql", "io/fs", "io/ioutil", "log", "math/rand", "net", "os",
	"path/filepath", "plugin", "runtime/debug", "syscall", "testing",
}

// pureExceptions are sub-packages of impure that only parse and format.
var pureExceptions = []string{"net/netip", "net/url"}

// clocks are the functions of otherwise pure packages that read a clock or wait for one.
var clocks = map[string][]string{
	"time": {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"google.golang.org/protobuf/types/known/timestamppb": {"Now"},
}

// confined names the only folder (sub-folders included) that may import a package.
var confined = []struct{ imports, folder string }{
	{"github.com/twmb/franz-go", "events/eventlog"},
	{"github.com/ClickHouse", "readmodels/clicks"},
	{"github.com/redis", "readmodels/redirects/shared"},
	{module + "/gateway/app", "."},
}

// harnesses are packages for tests: every test may import them, and each other, nothing else may.
var harnesses = []string{"events/eventlog/loopback", "events/eventlog/realkafka", "events/eventlog/virtualkafka", "events/eventlog/segments/segmentstest", "projections/runner/runnertest", "readmodels/clicks/engine/enginetest", "readmodels/redirects/shared/redistest", "gateway/systemtest"}

// topLevel is all that may lie at the top of the repository.
var topLevel = []string{
	".ci", ".gitignore", ".golangci.yml", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "Makefile", "README.md",
	"commands", "compose.yaml", "events", "gateway", "go.mod", "go.sum",
	"main.go", "projections", "readmodels", "schemas",
}

// TestArchitecture holds every package of the tree against the tables above.
func TestArchitecture(t *testing.T) {
	packages, err := parseTree("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 10 {
		t.Fatalf("found %d packages: the test does not see the tree", len(packages))
	}
	for _, problem := range violations(packages) {
		t.Error(problem)
	}
}

// TestTopLevel asks git what the repository holds, so that data and editor folders that it ignores do not matter.
func TestTopLevel(t *testing.T) {
	git := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	git.Dir = "../.."
	files, err := git.Output()
	if err != nil {
		t.Skipf("this tree is not a git checkout: %v", err)
	}
	for _, entry := range strayEntries(string(files)) {
		t.Errorf("%s: not a top-level entry of the layout", entry)
	}
	if got := strayEntries("events/a.go\nutils/a.go\nutils/b.go\nnotes.md\n"); !slices.Equal(got, []string{"notes.md", "utils"}) {
		t.Errorf("of a made-up tree it finds %q", got)
	}
}

// TestArchitectureNotices shows that each rule can fail, on small made-up trees.
func TestArchitectureNotices(t *testing.T) {
	const head = "// Package p is made up.\npackage p\n"
	for _, c := range []struct{ name, file, source, want string }{
		{"pure code that is fine", "events/a.go", head + `import ("fmt"; "net/url"; "time"; "github.com/cespare/xxhash/v2"); var a time.Time`, ""},
		{"import up", "readmodels/links/a.go", head + `import "github.com/hoplog/hoplog/projections/runner"`, ""},
		{"import down", "events/a.go", head + `import "github.com/hoplog/hoplog/commands"`, "imports github.com/hoplog/hoplog/commands, which lies below it"},
		{"commands see the read side", "commands/handler/a.go", head + `import "github.com/hoplog/hoplog/readmodels"`, "which lies below it"},
		{"import down in a test", "events/a_test.go", head + `import "github.com/hoplog/hoplog/gateway"`, "which lies below it"},
		{"pure package imports one that talks", "commands/a.go", head + `import "github.com/hoplog/hoplog/events/eventlog"`, "is pure and imports"},
		{"a folder without a place", "events/other/a.go", head, "has no place in the layout"},
		{"a new top folder", "internal/a.go", head, "has no place in the layout"},
		{"I/O in a pure folder", "events/a.go", head + `import "os"`, "is pure and imports os"},
		{"network in a pure folder", "projections/a.go", head + `import "net/http"`, "is pure and imports net/http"},
		{"I/O in a test of a pure folder", "events/a_test.go", head + `import "os"`, ""},
		{"randomness in a pure folder", "commands/a.go", head + `import "math/rand/v2"`, "is pure and imports math/rand/v2"},
		{"a library in a pure folder", "events/a.go", head + `import "github.com/google/uuid"`, "is pure and imports github.com/google/uuid"},
		{"a clock", "commands/a.go", head + `import "time"; var now = time.Now()`, "is pure and uses time.Now"},
		{"a renamed clock", "readmodels/a.go", head + `import t "time"; func f() { g(t.Since) }`, "is pure and uses time.Since"},
		{"a hidden clock", "events/a.go", head + `import . "time"; var now = Now()`, "imports time without a name"},
		{"a clock where it is allowed", "commands/handler/a.go", head + `import "time"; var now = time.Now()`, ""},
		{"a variable named as the package", "events/a.go", head + `import "time"; type w struct{ Now int; T time.Time }; func f(time w) int { return time.Now }`, ""},
		{"Kafka outside eventlog", "projections/runner/a.go", head + `import "github.com/twmb/franz-go/pkg/kgo"`, "only events/eventlog may"},
		{"Kafka inside eventlog", "events/eventlog/a.go", head + `import "github.com/twmb/franz-go/pkg/kgo"`, ""},
		{"ClickHouse outside clicks", "gateway/a.go", head + `import "github.com/ClickHouse/clickhouse-go/v2"`, "only readmodels/clicks may"},
		{"ClickHouse below clicks", "readmodels/clicks/engine/a.go", head + `import "github.com/ClickHouse/ch-go"`, ""},
		{"Redis outside the shared tier", "gateway/a.go", head + `import "github.com/redis/rueidis"`, "only readmodels/redirects/shared may"},
		{"the composition root in a library", "gateway/bench/a.go", head + `import "github.com/hoplog/hoplog/gateway/app"`, "only . may"},
		{"a harness in a test", "commands/handler/a_test.go", head + `import "github.com/hoplog/hoplog/events/eventlog/realkafka"`, ""},
		{"a harness in the product", "gateway/bench/a.go", head + `import "github.com/hoplog/hoplog/events/eventlog/realkafka"`, "is for tests"},
		{"no package comment", "gateway/a.go", "package p\n", "has no package comment"},
		{"a generated package", "schemas/pb/a.go", "// Code generated by hand. DO NOT EDIT.\n\n// Anything.\npackage pb\n", ""},
		{"a package comment about another", "gateway/a.go", "// Package q is made up.\npackage p\n", "package comment must begin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			packages, err := parseSources(map[string]string{c.file: c.source})
			if err != nil {
				t.Fatal(err)
			}
			got := violations(packages)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("want nothing, got %q", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("want one problem with %q, got %q", c.want, got)
			}
		})
	}
}
