package commands_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

func addDomain(d *pb.Domain) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_AddDomain{AddDomain: d}}
}

func addKey(k *pb.ApiKey) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_AddKey{AddKey: k}}
}

func lease(space uint32, size uint64) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_LeaseSegment{LeaseSegment: &pb.LeaseSegment{Space: space, Size: size, Holder: "life"}}}
}

func codeKey(version uint32, b byte) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_AddPermutationKey{AddPermutationKey: &pb.PermutationKey{Version: version, Key: bytes.Repeat([]byte{b}, 16)}}}
}

func words(list ...string) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_SetReservedWords{SetReservedWords: &pb.ReservedWords{Words: list}}}
}

// controlled folds what the commands lead to; each must lead to this many events.
func controlled(t *testing.T, list ...*pb.ControlCommand) *commands.Control {
	t.Helper()
	var c *commands.Control
	for i, command := range list {
		d := commands.DecideControl(c, command, 0)
		if d.Outcome.GetError() != "" || len(d.Events) != 1 {
			t.Fatalf("command %d: %v", i, d)
		}
		c = commands.EvolveControl(c, &pb.Envelope{Seq: uint64(i + 1), Events: d.Events})
	}
	return c
}

func TestControl(t *testing.T) {
	domain := &pb.Domain{Namespace: "s.example", Aliases: []string{"127.0.0.1:8081"}, IsDefault: true}
	key := &pb.ApiKey{Id: "k", Hash: bytes.Repeat([]byte{7}, 32), Owner: "ann"}
	c := controlled(t, addDomain(domain), addKey(key), lease(7, 100), lease(7, 50), lease(0, 10), codeKey(1, 9), words("admin"))
	if c.Seq != 7 || c.DefaultDomain().GetNamespace() != "s.example" || c.Resolve("127.0.0.1:8081").GetNamespace() != "s.example" || c.Resolve("x.example") != nil {
		t.Fatalf("domains: %v", c)
	}
	if c.Key([32]byte(key.GetHash())).GetOwner() != "ann" || c.Key([32]byte{}) != nil {
		t.Fatal("keys")
	}
	if c.NextID(7) != 151 || c.NextID(0) != 11 || c.NextID(8) != 1 {
		t.Fatal("segments", c.NextID(7), c.NextID(0), c.NextID(8))
	}
	if !c.Reserved("admin") || !c.Reserved("robots.txt") || c.Reserved("abc") || len(c.PermutationKeys()) != 1 {
		t.Fatal("words or keys")
	}
	for name, command := range map[string]*pb.ControlCommand{
		"domain": addDomain(domain), "key": addKey(key), "permutation key": codeKey(1, 9), "words": words("admin"),
	} {
		if d := commands.DecideControl(c, command, 0); len(d.Events) != 0 || d.Outcome.GetError() != "" {
			t.Errorf("the same %s again: %v", name, d)
		}
	}
	for name, command := range map[string]*pb.ControlCommand{
		"alias is taken":               addDomain(&pb.Domain{Namespace: "127.0.0.1:8081"}),
		"second default":               addDomain(&pb.Domain{Namespace: "b.example", IsDefault: true}),
		"alias elsewhere":              addDomain(&pb.Domain{Namespace: "b.example", Aliases: []string{"s.example"}}),
		"not normalised":               addDomain(&pb.Domain{Namespace: "B.example"}),
		"owner with NUL":               addKey(&pb.ApiKey{Id: "k", Hash: make([]byte, 32), Owner: "ann\x00"}),
		"id with a line end":           addKey(&pb.ApiKey{Id: "k\n", Hash: make([]byte, 32), Owner: "ann"}),
		"domain owner with a line end": addDomain(&pb.Domain{Namespace: "b.example", Owner: "ann\n"}),
		"no hash":                      addKey(&pb.ApiKey{Id: "k", Owner: "ann"}),
		"short hash":                   addKey(&pb.ApiKey{Id: "k", Hash: make([]byte, 31), Owner: "ann"}),
		"another owner":                addDomain(&pb.Domain{Namespace: "s.example", Owner: "bob"}),
		"empty lease":                  lease(7, 0),
		"huge lease":                   lease(7, 1<<40),
		"permutation key again":        codeKey(1, 8),
		"permutation key later":        codeKey(3, 8),
		"no code":                      words("a/b"),
		"nothing":                      {},
	} {
		if d := commands.DecideControl(c, command, 0); d.Outcome.GetError() != "invalid_request" || d.Outcome.GetDetail() == "" || len(d.Events) != 0 {
			t.Errorf("%s: %v", name, d)
		}
	}
}

// A state that somebody holds must not change under his hands.
func TestControlIsNeverChanged(t *testing.T) {
	before := controlled(t, addDomain(&pb.Domain{Namespace: "s.example"}), words("admin"))
	d := commands.DecideControl(before, addDomain(&pb.Domain{Namespace: "b.example"}), 0)
	after := commands.EvolveControl(before, &pb.Envelope{Seq: 3, Events: d.Events})
	if before.Resolve("b.example") != nil || before.Seq != 2 || after.Resolve("b.example") == nil || after.Resolve("s.example") == nil {
		t.Fatal("the old state changed, or the new one did not")
	}
}

func TestTheNilControl(t *testing.T) {
	var c *commands.Control
	if c.Resolve("s.example") != nil || c.DefaultDomain() != nil || c.NextID(7) != 1 || !c.Reserved("favicon.ico") || c.Key([32]byte{}) != nil {
		t.Fatal("the state before the first envelope knows something")
	}
}

// What the stamp says of a command is what the control state says, and where it was read.
func TestVerdicts(t *testing.T) {
	c := controlled(t, addDomain(&pb.Domain{Namespace: "s.example", Aliases: []string{"t.example"}}), addDomain(&pb.Domain{Namespace: "o.example", Owner: "ann"}), words("admin"))
	create := func(namespace, code, target string) *pb.LinkCommand {
		return &pb.LinkCommand{Namespace: namespace, Code: code, Kind: &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: &pb.LinkContent{Target: target}}}}
	}
	update := func(code, target string) *pb.LinkCommand {
		return &pb.LinkCommand{Namespace: "s.example", Code: code, Kind: &pb.LinkCommand_Update{Update: &pb.UpdateLink{Content: &pb.LinkContent{Target: target}}}}
	}
	for name, x := range map[string]struct {
		command *pb.LinkCommand
		want    *pb.Stamp
	}{
		"shared domain":       {create("s.example", "abc", "https://example.com/"), &pb.Stamp{DomainKnown: true}},
		"domain of an owner":  {create("o.example", "abc", "https://example.com/"), &pb.Stamp{DomainKnown: true, DomainOwner: "ann"}},
		"an alias":            {create("t.example", "abc", "https://example.com/"), &pb.Stamp{}},
		"no domain":           {create("x.example", "abc", "https://example.com/"), &pb.Stamp{}},
		"reserved":            {create("s.example", "admin", "https://example.com/"), &pb.Stamp{DomainKnown: true, ReservedCode: true}},
		"reserved for ever":   {create("s.example", "robots.txt", "https://example.com/"), &pb.Stamp{DomainKnown: true, ReservedCode: true}},
		"loop":                {create("s.example", "abc", "https://o.example/x"), &pb.Stamp{DomainKnown: true, TargetIsOwn: true}},
		"loop by an alias":    {create("s.example", "abc", "https://t.example/x"), &pb.Stamp{DomainKnown: true, TargetIsOwn: true}},
		"update":              {update("admin", "https://example.com/"), &pb.Stamp{DomainKnown: true}},
		"update to a loop":    {update("abc", "https://s.example/x"), &pb.Stamp{DomainKnown: true, TargetIsOwn: true}},
		"update of the title": {update("abc", ""), &pb.Stamp{DomainKnown: true}},
	} {
		got := &pb.Stamp{}
		commands.Judge(got, x.command, c)
		if x.want.ControlSeq = 3; !proto.Equal(got, x.want) {
			t.Errorf("%s: %v, wanted %v", name, got, x.want)
		}
	}
	kept := &pb.Stamp{ControlSeq: 4}
	if commands.Judge(kept, create("s.example", "abc", "https://example.com/"), nil); !proto.Equal(kept, &pb.Stamp{ControlSeq: 4}) {
		t.Errorf("before the first control envelope: %v", kept)
	}
}
