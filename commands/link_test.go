package commands_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

const (
	day  = int64(24 * 3600 * 1_000_000)
	now  = 1000 * day
	site = "s.example"
)

// scenario is given/when/then for the link decider: envelopes that were accepted, a command, what it leads to.
type scenario struct {
	t        *testing.T
	state    commands.State
	requests map[string]*pb.StoredRequest
}

func given(t *testing.T, accepted ...*pb.Envelope) *scenario {
	s := &scenario{t: t, requests: map[string]*pb.StoredRequest{}}
	for _, e := range accepted {
		s.state.Request = s.requests[e.GetRequest().GetKey()]
		s.state = commands.Evolve(s.state, e)
		s.requests[e.GetRequest().GetKey()] = s.state.Request
	}
	return s
}

// asTwin makes the link of the state the one that the fingerprint of a create with dedupe points to.
func (s *scenario) asTwin() *scenario {
	s.state.Twin, s.state.Link = s.state.Link, nil
	return s
}

func (s *scenario) when(c commands.LinkCommand) *result {
	s.state.Request = s.requests[c.GetRequest().GetKey()]
	return &result{s.t, commands.Decide(s.state, c), s.state, c}
}

type result struct {
	t *testing.T
	commands.Decision
	state commands.State
	c     commands.LinkCommand
}

func (r *result) then(types ...string) *result {
	r.t.Helper()
	if r.Outcome.GetError() != "" || len(r.Events) != len(types) {
		r.t.Fatalf("events %v, outcome %v, wanted %v", r.Events, r.Outcome, types)
	}
	for i, e := range r.Events {
		if events.EventType(e) != types[i] {
			r.t.Fatalf("event %s, wanted %s", events.EventType(e), types[i])
		}
	}
	return r
}

func (r *result) refused(code, field string) {
	r.t.Helper()
	if r.Outcome.GetError() != code || r.Outcome.GetField() != field || len(r.Events) != 0 || r.Outcome.GetDetail() == "" {
		r.t.Fatalf("outcome %v, events %v, wanted %s of %q with a detail and no event", r.Outcome, r.Events, code, field)
	}
}

// envelope is what the writer makes of the result.
func (r *result) envelope() *pb.Envelope {
	return &pb.Envelope{Events: r.Events, Outcome: r.Outcome, Stamp: r.c.Stamp, Request: r.c.GetRequest()}
}

func (r *result) next() commands.State { return commands.Evolve(r.state, r.envelope()) }

func stamped(code string, change func(*pb.LinkCommand)) commands.LinkCommand {
	c := &pb.LinkCommand{Namespace: site, Code: code, Request: &pb.RequestRef{Owner: "ann", Key: "k1"}}
	change(c)
	c.Request.BodyHash = commands.BodyHash(c)
	return commands.LinkCommand{LinkCommand: c, Bucket: commands.BucketFor(c),
		Stamp: &pb.Stamp{TimeUs: now, DomainKnown: true, CandidateId: 77}}
}

func content(target string) *pb.LinkContent { return &pb.LinkContent{Target: target} }

func createAs(code string, c *pb.LinkContent) commands.LinkCommand {
	return stamped(code, func(l *pb.LinkCommand) { l.Kind = &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: c}} })
}

func dedupe(target string) commands.LinkCommand {
	c := stamped("", func(l *pb.LinkCommand) {
		l.Kind = &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: content(target), Dedupe: true}}
	})
	c.Stamp.CandidateCode = codeIn(c.Bucket)
	return c
}

func update(change *pb.UpdateLink) commands.LinkCommand {
	return stamped("abc", func(l *pb.LinkCommand) { l.Kind = &pb.LinkCommand_Update{Update: change} })
}

func status(action pb.StatusAction, more ...func(*pb.ChangeLinkStatus)) commands.LinkCommand {
	return stamped("abc", func(l *pb.LinkCommand) {
		change := &pb.ChangeLinkStatus{Action: action, Reason: "why"}
		for _, f := range more {
			f(change)
		}
		l.Kind = &pb.LinkCommand_ChangeStatus{ChangeStatus: change}
	})
}

// other is the same command under another key.
func other(c commands.LinkCommand, key string) commands.LinkCommand {
	c.LinkCommand = proto.Clone(c.LinkCommand).(*pb.LinkCommand)
	c.Request.Key = key
	return c
}

func with(c commands.LinkCommand, change func(*pb.Stamp)) commands.LinkCommand {
	c.Stamp = proto.Clone(c.Stamp).(*pb.Stamp)
	change(c.Stamp)
	return c
}

// codeIn finds a code that routes to the bucket.
func codeIn(bucket uint32) string {
	for n := uint64(0); ; n++ {
		code := []byte("aaaaaaa")
		for i, rest := 0, n; rest > 0; i, rest = i+1, rest/26 {
			code[i] = 'a' + byte(rest%26)
		}
		if events.BucketOf(site, string(code)) == bucket {
			return string(code)
		}
	}
}

func made(t *testing.T, change func(*pb.LinkContent)) *pb.Envelope {
	c := content("https://example.com/")
	if change != nil {
		change(c)
	}
	return given(t).when(other(createAs("abc", c), "k0")).then("link.created").envelope()
}

func after(t *testing.T, e *pb.Envelope, c commands.LinkCommand, kind string) *pb.Envelope {
	return given(t, e).when(c).then(kind).envelope()
}

func TestCreate(t *testing.T) {
	link := given(t).when(createAs("abc", content("https://example.com/"))).then("link.created").next().Link
	if link.GetVersion() != 1 || link.GetRef().GetLinkId() != 77 || link.GetRef().GetOwner() != "ann" || link.GetCreatedUs() != now {
		t.Fatalf("made %v", link)
	}
}

func TestCreateWithDrawnCode(t *testing.T) {
	c := stamped("", func(l *pb.LinkCommand) {
		l.Kind = &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: content("https://example.com/")}}
	})
	t.Run("none drawn", func(t *testing.T) { given(t).when(c).refused("unavailable", "") })
	t.Run("no id drawn", func(t *testing.T) {
		given(t).when(with(c, func(s *pb.Stamp) { s.CandidateCode, s.CandidateId = codeIn(c.Bucket), 0 })).refused("unavailable", "")
	})
	t.Run("drawn", func(t *testing.T) {
		given(t).when(with(c, func(s *pb.Stamp) { s.CandidateCode = codeIn(c.Bucket) })).then("link.created")
	})
	t.Run("routes elsewhere", func(t *testing.T) {
		given(t).when(with(c, func(s *pb.Stamp) { s.CandidateCode = codeIn(c.Bucket + 1) })).refused("invalid_request", "code")
	})
}

func TestCreateRefused(t *testing.T) {
	good := createAs("abc", content("https://example.com/"))
	long := make([]string, 51)
	for i := range long {
		long[i] = string(rune('a' + i))
	}
	for name, c := range map[string]struct {
		command     commands.LinkCommand
		code, field string
	}{
		"unknown domain":    {with(good, func(s *pb.Stamp) { s.DomainKnown = false }), "domain_not_owned", "domain"},
		"foreign domain":    {with(good, func(s *pb.Stamp) { s.DomainOwner = "bob" }), "domain_not_owned", "domain"},
		"reserved":          {with(good, func(s *pb.Stamp) { s.ReservedCode = true }), "reserved_code", "code"},
		"loop":              {with(good, func(s *pb.Stamp) { s.TargetIsOwn = true }), "invalid_target", "target"},
		"no target":         {createAs("abc", content("")), "invalid_target", "target"},
		"raw target":        {createAs("abc", content(" https://example.com/")), "invalid_target", "target"},
		"bad code":          {createAs("a/b", content("https://example.com/")), "invalid_code", "code"},
		"code not NFC":      {createAs("cafe\u0301", content("https://example.com/")), "invalid_code", "code"},
		"title":             {createAs("abc", &pb.LinkContent{Target: "https://example.com/", Title: "a\nb"}), "invalid_request", "title"},
		"title not UTF-8":   {createAs("abc", &pb.LinkContent{Target: "https://example.com/", Title: "\xff"}), "invalid_request", "title"},
		"tag twice":         {createAs("abc", &pb.LinkContent{Target: "https://example.com/", Tags: []string{"a", "a"}}), "invalid_request", "tags"},
		"empty tag":         {createAs("abc", &pb.LinkContent{Target: "https://example.com/", Tags: []string{""}}), "invalid_request", "tags"},
		"too many tags":     {createAs("abc", &pb.LinkContent{Target: "https://example.com/", Tags: long}), "invalid_request", "tags"},
		"status":            {createAs("abc", &pb.LinkContent{Target: "https://example.com/", RedirectStatus: 303}), "invalid_request", "redirect_status"},
		"query":             {createAs("abc", &pb.LinkContent{Target: "https://example.com/", Query: 9}), "invalid_request", "query"},
		"ttl":               {createAs("abc", &pb.LinkContent{Target: "https://example.com/", CacheTtl: 1 << 30}), "invalid_request", "cache_ttl"},
		"times":             {createAs("abc", &pb.LinkContent{Target: "https://example.com/", NotBeforeUs: 9, ExpiresUs: 9}), "invalid_request", "expires_at"},
		"year 10000":        {createAs("abc", &pb.LinkContent{Target: "https://example.com/", ExpiresUs: 1 << 62}), "invalid_request", "expires_at"},
		"expired command":   {with(good, func(s *pb.Stamp) { s.Failed = "command_expired" }), "command_expired", ""},
		"control is behind": {with(good, func(s *pb.Stamp) { s.Failed = "unavailable" }), "unavailable", ""},
		"no kind":           {stamped("abc", func(*pb.LinkCommand) {}), "invalid_request", ""},
		"code and length": {stamped("abc", func(l *pb.LinkCommand) {
			l.Kind = &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: content("https://example.com/"), CodeLength: 7}}
		}), "invalid_request", "code_length"},
		"code and dedupe": {stamped("abc", func(l *pb.LinkCommand) {
			l.Kind = &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: content("https://example.com/"), Dedupe: true}}
		}), "invalid_request", "dedupe"},
		"long length": {stamped("", func(l *pb.LinkCommand) {
			l.Kind = &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: content("https://example.com/"), CodeLength: 65}}
		}), "invalid_request", "code_length"},
		"short random": {stamped("", func(l *pb.LinkCommand) {
			l.Kind = &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: content("https://example.com/"), CodeLength: 7, CodeMode: pb.CodeMode_CODE_MODE_RANDOM}}
		}), "invalid_request", "code_length"},
		"short length": {stamped("", func(l *pb.LinkCommand) {
			l.Kind = &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: content("https://example.com/"), CodeLength: 4}}
		}), "invalid_request", "code_length"},
	} {
		t.Run(name, func(t *testing.T) { given(t).when(c.command).refused(c.code, c.field) })
	}
}

func TestCodeTaken(t *testing.T) {
	again := other(createAs("abc", content("https://example.com/2")), "k9")
	given(t, made(t, nil)).when(again).refused("code_taken", "code")
	tombstone := after(t, made(t, nil), status(pb.StatusAction_DELETE), "link.deleted")
	given(t, made(t, nil), tombstone).when(again).refused("code_taken", "code")
}

func TestRequestKey(t *testing.T) {
	first := createAs("abc", content("https://example.com/"))
	t.Run("same body: the stored outcome, before any other rule", func(t *testing.T) {
		e := given(t).when(first).then("link.created").envelope()
		late := with(first, func(s *pb.Stamp) { s.TimeUs, s.DomainKnown, s.Failed = now+7*day, false, "command_expired" })
		r := given(t, e).when(late).then()
		if !r.Outcome.GetReplayed() || r.Outcome.GetCode() != "abc" || r.Outcome.GetVersion() != 1 {
			t.Fatalf("%v", r.Outcome)
		}
	})
	t.Run("other body", func(t *testing.T) {
		e := given(t).when(first).envelope()
		given(t, e).when(createAs("abc", content("https://example.com/2"))).refused("idempotency_key_reused", "")
	})
	t.Run("a stored refusal stays, though it would succeed now", func(t *testing.T) {
		e := given(t).when(with(first, func(s *pb.Stamp) { s.ReservedCode = true })).envelope()
		r := given(t, e).when(first)
		if r.Outcome.GetError() != "reserved_code" || !r.Outcome.GetReplayed() {
			t.Fatalf("%v", r.Outcome)
		}
	})
	for _, code := range []string{"unavailable", "command_expired", "quota_exceeded"} {
		t.Run(code+" is not stored", func(t *testing.T) {
			e := given(t).when(with(first, func(s *pb.Stamp) { s.Failed = code })).envelope()
			given(t, e).when(first).then("link.created")
		})
	}
	t.Run("a repeat does not renew the key, nor does a reuse", func(t *testing.T) {
		e := given(t).when(first).envelope()
		repeat := given(t, e).when(with(first, func(s *pb.Stamp) { s.TimeUs = now + 6*day })).envelope()
		reuse := given(t, e).when(with(createAs("abc", content("https://example.com/2")), func(s *pb.Stamp) { s.TimeUs = now + 6*day })).envelope()
		if state := given(t, e, repeat, reuse).state; state.Request.GetTimeUs() != now {
			t.Fatalf("stored at %d", state.Request.GetTimeUs())
		}
	})
	t.Run("expires at 8 days, not before", func(t *testing.T) {
		e := given(t).when(first).envelope()
		at := func(us int64) commands.LinkCommand { return with(first, func(s *pb.Stamp) { s.TimeUs = now + us }) }
		given(t, e).when(at(8*day - 1)).then()
		given(t, e).when(at(8*day)).refused("code_taken", "code")
	})
}

func TestUpdate(t *testing.T) {
	to := func(target string, version uint64) commands.LinkCommand {
		return update(&pb.UpdateLink{Content: content(target), Fields: []string{"target"}, IfVersion: version})
	}
	r := given(t, made(t, func(c *pb.LinkContent) { c.Title = "kept" })).when(to("https://example.com/2", 1)).then("link.updated")
	if link := r.next().Link; link.GetVersion() != 2 || link.GetContent().GetTarget() != "https://example.com/2" || link.GetContent().GetTitle() != "kept" {
		t.Fatalf("%v", link)
	}
	if changed := r.Events[0].GetLinkUpdated().GetChanged(); len(changed) != 1 || changed[0] != "target" {
		t.Fatalf("changed %v", changed)
	}
	t.Run("no change, no event", func(t *testing.T) {
		if r := given(t, made(t, nil)).when(to("https://example.com/", 1)).then(); r.Outcome.GetVersion() != 1 {
			t.Fatal(r.Outcome)
		}
	})
	t.Run("stale", func(t *testing.T) {
		given(t, made(t, nil)).when(to("https://example.com/2", 7)).refused("version_mismatch", "")
		given(t, made(t, nil), r.envelope()).when(other(to("https://example.com/3", 1), "k9")).refused("version_mismatch", "")
	})
	t.Run("one of several versions", func(t *testing.T) {
		to := func(or ...uint64) commands.LinkCommand {
			return update(&pb.UpdateLink{Content: content("https://example.com/2"), Fields: []string{"target"}, IfVersion: 7, OrVersions: or})
		}
		given(t, made(t, nil)).when(to(9, 1)).then("link.updated")
		given(t, made(t, nil)).when(to(9, 2)).refused("version_mismatch", "")
		given(t, made(t, nil)).when(status(pb.StatusAction_DISABLE, func(c *pb.ChangeLinkStatus) { c.IfVersion, c.OrVersions = 7, []uint64{1} })).then("link.disabled")
	})
	t.Run("no version at all", func(t *testing.T) {
		r := given(t, made(t, nil)).when(to("https://example.com/2", commands.NoVersion))
		r.refused("version_mismatch", "")
		if detail := r.Outcome.GetDetail(); !strings.Contains(detail, "version 1,") || strings.Contains(detail, "18446744073709551615") {
			t.Error(detail)
		}
	})
	t.Run("no link", func(t *testing.T) { given(t).when(to("https://example.com/2", 0)).refused("not_found", "") })
	t.Run("foreign link", func(t *testing.T) {
		c := to("https://example.com/2", 0)
		c.Request.Owner = "bob"
		given(t, made(t, nil)).when(c).refused("not_found", "")
	})
	t.Run("loop", func(t *testing.T) {
		given(t, made(t, nil)).when(with(to("https://s.example/x", 0), func(s *pb.Stamp) { s.TargetIsOwn = true })).refused("invalid_target", "target")
	})
	t.Run("what is not named is not judged", func(t *testing.T) {
		title := update(&pb.UpdateLink{Content: &pb.LinkContent{Target: "https://s.example/x", Title: "2"}, Fields: []string{"title"}})
		given(t, made(t, nil)).when(with(title, func(s *pb.Stamp) { s.TargetIsOwn = true })).then("link.updated")
	})
	t.Run("what a create may not have", func(t *testing.T) {
		given(t, made(t, nil)).when(to("javascript:1", 0)).refused("invalid_target", "target")
		given(t, made(t, nil)).when(update(&pb.UpdateLink{Content: &pb.LinkContent{RedirectStatus: 303}, Fields: []string{"redirect_status"}})).refused("invalid_request", "redirect_status")
	})
	t.Run("unknown field", func(t *testing.T) {
		given(t, made(t, nil)).when(update(&pb.UpdateLink{Fields: []string{"owner"}})).refused("invalid_request", "")
	})
	t.Run("clears", func(t *testing.T) {
		e := made(t, func(c *pb.LinkContent) { c.ExpiresUs = now + day })
		r := given(t, e).when(update(&pb.UpdateLink{Fields: []string{"expires_at"}})).then("link.updated")
		if r.next().Link.GetContent().GetExpiresUs() != 0 {
			t.Fatal("still expires")
		}
	})
}

func TestStatus(t *testing.T) {
	link := made(t, nil)
	disabled := after(t, link, status(pb.StatusAction_DISABLE), "link.disabled")
	banned := after(t, link, status(pb.StatusAction_BAN, func(c *pb.ChangeLinkStatus) { c.Legal = true }), "link.banned")
	if s := given(t, link, banned).state.Link; !s.GetBanned() || !s.GetBannedLegal() || s.GetVersion() != 2 {
		t.Fatalf("%v", s)
	}
	given(t, link, disabled).when(other(status(pb.StatusAction_DISABLE), "k2")).then()
	given(t, link, disabled).when(other(status(pb.StatusAction_ENABLE), "k2")).then("link.enabled")
	given(t, link).when(status(pb.StatusAction_ENABLE)).then()
	given(t, link, banned).when(other(status(pb.StatusAction_UNBAN), "k2")).then("link.unbanned")
	deleted := after(t, link, status(pb.StatusAction_DELETE), "link.deleted")
	given(t, link, deleted).when(other(status(pb.StatusAction_ENABLE), "k2")).refused("not_found", "")
	given(t, link).when(status(pb.StatusAction_DISABLE, func(c *pb.ChangeLinkStatus) { c.IfVersion = 9 })).refused("version_mismatch", "")
	given(t, link).when(status(99)).refused("invalid_request", "action")
	given(t, link).when(status(0)).refused("invalid_request", "action")
	given(t, link).when(status(pb.StatusAction_BAN, func(c *pb.ChangeLinkStatus) { c.Reason = "\x00" })).refused("invalid_request", "reason")
}

// What a change does not speak of stays as it was.
func TestStatusKeepsTheRest(t *testing.T) {
	legal := func(c *pb.ChangeLinkStatus) { c.Legal = true }
	s := given(t, given(t).when(other(dedupe("https://example.com/"), "k0")).envelope())
	made := s.state.Link
	step := func(c commands.LinkCommand) *pb.Link {
		t.Helper()
		c.Code, c.Request.Key = made.GetRef().GetCode(), "k"+string(rune('a'+s.state.Link.GetVersion()))
		c.Bucket = commands.BucketFor(c.LinkCommand)
		c.Stamp.TimeUs += int64(s.state.Link.GetVersion())
		s.state = s.when(c).next()
		return s.state.Link
	}
	if l := step(status(pb.StatusAction_DISABLE, legal)); !l.GetDisabled() || l.GetBannedLegal() || l.GetUpdatedUs() != now+1 || l.GetCreatedUs() != now {
		t.Fatalf("disabled: %v", l)
	}
	if l := step(status(pb.StatusAction_BAN, legal)); !l.GetDisabled() || !l.GetBanned() || !l.GetBannedLegal() {
		t.Fatalf("banned: %v", l)
	}
	if l := step(update(&pb.UpdateLink{Content: &pb.LinkContent{Title: "2"}, Fields: []string{"title"}, Reason: "why"})); !l.GetDisabled() || !l.GetBanned() || !l.GetBannedLegal() {
		t.Fatalf("updated: %v", l)
	}
	if l := step(status(pb.StatusAction_UNBAN)); !l.GetDisabled() || l.GetBanned() || l.GetBannedLegal() {
		t.Fatalf("unbanned: %v", l)
	}
	l := step(status(pb.StatusAction_DELETE))
	if !l.GetDeleted() || !l.GetDisabled() || l.GetVersion() != 6 || l.GetCreatedUs() != now || l.GetUpdatedUs() != now+5 {
		t.Fatalf("deleted: %v", l)
	}
	if len(l.GetFingerprint()) == 0 || !proto.Equal(l.GetRef(), made.GetRef()) || l.GetContent().GetTitle() != "2" {
		t.Fatalf("deleted: %v, made: %v", l, made)
	}
}

func TestReasonsAreKept(t *testing.T) {
	link := made(t, nil)
	r := given(t, link).when(update(&pb.UpdateLink{Content: content("https://example.com/2"), Fields: []string{"target"}, Reason: "moved"})).then("link.updated")
	if got := r.Events[0].GetLinkUpdated().GetReason(); got != "moved" {
		t.Errorf("update: %q", got)
	}
	if got := given(t, link).when(status(pb.StatusAction_BAN)).then("link.banned").Events[0].GetLinkStatusChanged().GetReason(); got != "why" {
		t.Errorf("ban: %q", got)
	}
	legal := status(pb.StatusAction_DISABLE, func(c *pb.ChangeLinkStatus) { c.Legal = true })
	if given(t, link).when(legal).then("link.disabled").Events[0].GetLinkStatusChanged().GetLegal() {
		t.Error("only a ban is legal")
	}
}

func TestDedupe(t *testing.T) {
	first := dedupe("https://example.com/")
	e := given(t).when(first).then("link.created").envelope()
	again := other(dedupe("https://example.com/"), "k2")
	t.Run("meets itself", func(t *testing.T) {
		r := given(t, e).asTwin().when(again).then()
		if !r.Outcome.GetExisting() || r.Outcome.GetCode() != first.Stamp.GetCandidateCode() {
			t.Fatalf("%v", r.Outcome)
		}
	})
	t.Run("a repeat meets it again", func(t *testing.T) {
		met := given(t, e).asTwin().when(again).envelope()
		if out := given(t, e, met).when(again).then().Outcome; !out.GetExisting() || !out.GetReplayed() {
			t.Fatalf("%v", out)
		}
	})
	for name, change := range map[string]func(*pb.Link){
		"deleted":      func(l *pb.Link) { l.Deleted = true },
		"disabled":     func(l *pb.Link) { l.Disabled = true },
		"banned":       func(l *pb.Link) { l.Banned = true },
		"expired":      func(l *pb.Link) { l.Content.ExpiresUs = now },
		"not yet":      func(l *pb.Link) { l.Content.NotBeforeUs = now + 1 },
		"other target": func(l *pb.Link) { l.Content.Target = "https://example.com/2" },
		"other owner":  func(l *pb.Link) { l.Ref.Owner = "bob" },
	} {
		t.Run("a new link takes the place of one that is "+name, func(t *testing.T) {
			s := given(t, e).asTwin()
			s.state.Twin = proto.Clone(s.state.Twin).(*pb.Link)
			change(s.state.Twin)
			s.when(again).then("link.created")
		})
	}
}

func TestForm(t *testing.T) {
	good := createAs("abc", content("https://example.com/")).LinkCommand
	good.SchemaVersion, good.CommandId = 1, make([]byte, 16)
	if r := commands.CheckForm(good, commands.BucketFor(good)); r != nil {
		t.Fatal(r)
	}
	for name, change := range map[string]func(*pb.LinkCommand){
		"no version":    func(c *pb.LinkCommand) { c.SchemaVersion = 0 },
		"newer":         func(c *pb.LinkCommand) { c.SchemaVersion = 99 },
		"short id":      func(c *pb.LinkCommand) { c.CommandId = c.CommandId[:8] },
		"no owner":      func(c *pb.LinkCommand) { c.Request.Owner = "" },
		"no key":        func(c *pb.LinkCommand) { c.Request.Key = "" },
		"no body hash":  func(c *pb.LinkCommand) { c.Request.BodyHash = nil },
		"routes away":   func(c *pb.LinkCommand) { c.Code = "abd" },
		"other request": func(c *pb.LinkCommand) { c.Request = nil },

		"owner not UTF-8":     func(c *pb.LinkCommand) { c.Request.Owner = "\xff" },
		"owner like two":      func(c *pb.LinkCommand) { c.Request.Owner = "ann\x00k" },
		"key not UTF-8":       func(c *pb.LinkCommand) { c.Request.Key = "\xff" },
		"actor not UTF-8":     func(c *pb.LinkCommand) { c.Actor = "\xff" },
		"namespace not UTF-8": func(c *pb.LinkCommand) { c.Namespace = "\xff" },
		"code not UTF-8":      func(c *pb.LinkCommand) { c.Code = "\xff" },
	} {
		c := proto.Clone(good).(*pb.LinkCommand)
		change(c)
		bucket := commands.BucketFor(c)
		if name == "routes away" {
			bucket = commands.BucketFor(good)
		}
		if r := commands.CheckForm(c, bucket); r == nil || r.Code != "invalid_request" {
			t.Errorf("%s: %v", name, r)
		}
	}
}

func TestCandidatesAreForCreatesThatMayNeedOne(t *testing.T) {
	c := createAs("", content("https://example.com/"))
	twin := given(t).when(dedupe("https://example.com/")).next().Link
	for name, x := range map[string]struct {
		state commands.State
		c     commands.LinkCommand
		want  bool
	}{
		"a create":             {commands.State{}, c, true},
		"an update":            {commands.State{}, update(&pb.UpdateLink{}), false},
		"no domain of ours":    {commands.State{}, with(c, func(s *pb.Stamp) { s.DomainKnown = false }), false},
		"could not stamp":      {commands.State{}, with(c, func(s *pb.Stamp) { s.Failed = "unavailable" }), false},
		"a repeat":             {commands.State{Request: &pb.StoredRequest{TimeUs: now, Outcome: &pb.Outcome{}}}, c, false},
		"an expired request":   {commands.State{Request: &pb.StoredRequest{TimeUs: now - 8*day, Outcome: &pb.Outcome{}}}, c, true},
		"a twin that counts":   {commands.State{Twin: twin}, dedupe("https://example.com/"), false},
		"a twin that does not": {commands.State{Twin: twin}, dedupe("https://example.com/2"), true},
	} {
		if got := commands.WantsCandidate(x.state, x.c); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
