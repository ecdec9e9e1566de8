package commands_test

import (
	"testing"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

func updateDomain(namespace, url string, fields ...string) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_UpdateDomain{UpdateDomain: &pb.UpdateDomain{Namespace: namespace, Fields: fields, NotFoundUrl: url}}}
}

func TestDomainsAreUpdated(t *testing.T) {
	const url, field = "https://example.com/none?q=%2f", commands.FieldNotFoundURL
	given := []*pb.ControlCommand{
		addDomain(&pb.Domain{Namespace: "s.example", Aliases: []string{"t.example"}, Owner: "ann", IsDefault: true}), addDomain(&pb.Domain{Namespace: "b.example:8081"}),
		{Kind: &pb.ControlCommand_AddListEntry{AddListEntry: &pb.ListEntry{List: pb.ListName_DENYLIST, Kind: pb.ListKind_LIST_HOST_SUFFIX, Value: "evil.example"}}},
	}
	before := controlled(t, given...)
	after := controlled(t, append(given, updateDomain("s.example", url, field))...)
	for _, d := range []*pb.Domain{after.Resolve("s.example"), after.Resolve("t.example"), after.DefaultDomain(), after.Domains()["s.example"]} {
		if d.GetNotFoundUrl() != url || d.GetOwner() != "ann" || len(d.GetAliases()) != 1 || !d.GetIsDefault() {
			t.Errorf("%v", d)
		}
	}
	if after.NotFoundURL("s.example") != url || after.NotFoundURL("b.example:8081") != "" || after.NotFoundURL("x.example") != "" || before.NotFoundURL("s.example") != "" {
		t.Error("the URL is not that of this domain alone, from then on")
	}
	if cleared := controlled(t, append(given, updateDomain("s.example", url, field), updateDomain("s.example", "", field))...); cleared.NotFoundURL("t.example") != "" || len(cleared.Domains()) != 2 {
		t.Errorf("cleared: %v", cleared.Domains())
	}
	var none *commands.Control
	if none.NotFoundURL("s.example") != "" {
		t.Error("a URL before there is a domain")
	}
	for name, tried := range map[string]struct {
		command *pb.ControlCommand
		code    string // "": accepted, and nothing happens
	}{
		"as it is":           {updateDomain("s.example", url, field), ""},
		"none, as it is":     {updateDomain("b.example:8081", "", field), ""},
		"nothing asked":      {updateDomain("s.example", "https://example.com/other"), ""},
		"an unknown domain":  {updateDomain("x.example", url, field), commands.CodeNotFound},
		"an alias":           {updateDomain("t.example", url, field), commands.CodeNotFound},
		"an unknown setting": {updateDomain("s.example", url, field, "owner"), commands.CodeInvalidRequest},
		"no URL":             {updateDomain("s.example", "example.com", field), commands.CodeInvalidTarget},
		"another scheme":     {updateDomain("s.example", "javascript://example.com/%0aalert(1)", field), commands.CodeInvalidTarget},
		"not normal":         {updateDomain("s.example", " https://example.com/", field), commands.CodeInvalidTarget},
		"itself":             {updateDomain("s.example", "https://s.example/none", field), commands.CodeInvalidTarget},
		"an alias of itself": {updateDomain("s.example", "http://T.Example.:80/none", field), commands.CodeInvalidTarget},
		"another of ours":    {updateDomain("s.example", "http://b.example:8081/", field), commands.CodeInvalidTarget},
		"a denied host":      {updateDomain("s.example", "https://a.evil.example/", field), commands.CodeTargetBlocked},
		"a new domain's":     {addDomain(&pb.Domain{Namespace: "n.example", NotFoundUrl: url}), commands.CodeInvalidRequest},
	} {
		d := commands.DecideControl(after, tried.command, 0)
		if d.Outcome.GetError() != tried.code || len(d.Events) != 0 {
			t.Errorf("%s: %v", name, d)
		}
		if kind := tried.code; (kind == commands.CodeInvalidTarget || kind == commands.CodeTargetBlocked) && d.Outcome.GetField() != field {
			t.Errorf("%s: names field %q", name, d.Outcome.GetField())
		}
	}
	var history []*commands.ControlChange
	after.Changes(0, func(change *commands.ControlChange) bool { history = append(history, change); return true })
	if len(history) != 2 || history[0].GetDomainUpdated().GetDomain().GetNotFoundUrl() != url {
		t.Errorf("history: %v", history)
	}
}

// A domain's version is where in the control log it last changed, and a caller may demand it.
func TestDomainVersions(t *testing.T) {
	const url, field = "https://example.com/none", commands.FieldNotFoundURL
	c := controlled(t, addDomain(&pb.Domain{Namespace: "s.example"}), addDomain(&pb.Domain{Namespace: "b.example"}), updateDomain("s.example", url, field), words("admin"))
	if s, b, x := c.DomainSeq("s.example"), c.DomainSeq("b.example"), c.DomainSeq("x.example"); s != 3 || b != 2 || x != 0 {
		t.Fatalf("versions %d, %d, %d; wanted 3, 2, 0", s, b, x)
	}
	if none := (*commands.Control)(nil); none.DomainSeq("s.example") != 0 {
		t.Error("a version before there is a domain")
	}
	for name, x := range map[string]struct {
		seq  uint64
		or   []uint64
		code string
	}{
		"any":                      {0, nil, ""},
		"the present":              {3, nil, ""},
		"one of several":           {1, []uint64{2, 3}, ""},
		"the one before":           {1, nil, commands.CodeVersionMismatch},
		"the log's end":            {4, nil, commands.CodeVersionMismatch},
		"none of several":          {1, []uint64{2, 4}, commands.CodeVersionMismatch},
		"one that nothing has":     {commands.NoVersion, nil, commands.CodeVersionMismatch},
		"another domain's version": {2, nil, commands.CodeVersionMismatch},
	} {
		for what, to := range map[string]string{"changed": "https://example.com/other", "as it is": url} {
			command := updateDomain("s.example", to, field)
			command.GetUpdateDomain().IfSeq, command.GetUpdateDomain().OrSeqs = x.seq, x.or
			d := commands.DecideControl(c, command, 0)
			if d.Outcome.GetError() != x.code || (len(d.Events) == 1) != (x.code == "" && to != url) {
				t.Errorf("%s, %s: %v", name, what, d)
			}
		}
	}
	gone := updateDomain("x.example", url, field)
	gone.GetUpdateDomain().IfSeq = 3
	if d := commands.DecideControl(c, gone, 0); d.Outcome.GetError() != commands.CodeNotFound {
		t.Errorf("an unknown domain: %v", d)
	}
}

// Nodes that keep no history obey all the same.
func TestLeanControlFollowsDomains(t *testing.T) {
	lean := commands.LeanControl()
	for i, kind := range []*pb.Event{
		{Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{Domain: &pb.Domain{Namespace: "s.example"}}}},
		{Kind: &pb.Event_DomainUpdated{DomainUpdated: &pb.DomainUpdated{Domain: &pb.Domain{Namespace: "s.example", NotFoundUrl: "https://example.com/"}}}},
	} {
		lean = commands.EvolveControl(lean, &pb.Envelope{Seq: uint64(i + 1), Events: []*pb.Event{kind}})
	}
	lean.Changes(0, func(c *commands.ControlChange) bool { t.Errorf("kept %v", c); return true })
	if lean.NotFoundURL("s.example") != "https://example.com/" {
		t.Error("not followed")
	}
}
