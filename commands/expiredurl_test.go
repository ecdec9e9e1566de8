package commands_test

import (
	"testing"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

// What expired_url may be is judged as a target is, under its own name.
func TestExpiredURL(t *testing.T) {
	after := func(to string) *pb.LinkContent {
		c := content("https://example.com/")
		c.ExpiredUrl = to
		return c
	}
	judged := func(c commands.LinkCommand, own bool, list string) commands.LinkCommand {
		c.Request.Key = "k2"
		c.Stamp.ExpiredIsOwn, c.Stamp.ExpiredBlocked = own, list
		return c
	}
	set := func(to string) commands.LinkCommand {
		return update(&pb.UpdateLink{Content: &pb.LinkContent{ExpiredUrl: to}, Fields: []string{"expired_url"}})
	}
	there := given(t).when(createAs("abc", after("https://over.example/"))).then("link.created").envelope()
	given(t, there).when(judged(set("https://other.example/"), false, "")).then("link.updated")
	given(t, there).when(judged(set(""), false, "")).then("link.updated")
	given(t, there).when(judged(set("https://over.example/"), false, "")).then()
	given(t, there).when(judged(set("ftp://over.example/"), false, "")).refused("invalid_target", "expired_url")
	given(t, there).when(judged(set("https://Ü.example/"), false, "")).refused("invalid_target", "expired_url")
	given(t, there).when(judged(set("https://s.example/"), true, "")).refused("invalid_target", "expired_url")
	given(t, there).when(judged(set("https://evil.example/"), false, "denylist: host evil.example")).refused("target_blocked", "expired_url")
	given(t, there).when(judged(update(&pb.UpdateLink{Content: &pb.LinkContent{Title: "One"}, Fields: []string{"title"}}), true, "")).then("link.updated")
	given(t).when(judged(createAs("xyz", after("https://s.example/")), true, "")).refused("invalid_target", "expired_url")
}

func TestExpiredURLIsStamped(t *testing.T) {
	p := newPlane(t)
	p.want("", 1, denied(suffix, "bad.example"))
	for to, want := range map[string]*pb.Stamp{
		"https://s.example/x":   {ExpiredIsOwn: true},
		"https://a.bad.example": {ExpiredBlocked: "denylist: host_suffix bad.example"},
		"https://example.com/":  {},
		"":                      {},
	} {
		asked := &pb.LinkContent{Target: "https://example.com/", ExpiredUrl: to}
		for _, command := range []*pb.LinkCommand{{Kind: &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: asked}}}, {Kind: &pb.LinkCommand_Update{Update: &pb.UpdateLink{Content: asked}}}} {
			s := &pb.Stamp{TimeUs: p.nowUS}
			command.Namespace = "s.example"
			commands.Judge(s, command, p.state)
			if s.GetExpiredIsOwn() != want.GetExpiredIsOwn() || s.GetExpiredBlocked() != want.GetExpiredBlocked() || s.GetTargetIsOwn() || s.GetTargetBlocked() != "" {
				t.Errorf("%q: %v", to, s)
			}
		}
	}
}
