package commands_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Which bytes pick a bucket is part of the persistent protocol.
func TestBucketFor(t *testing.T) {
	c := &pb.LinkCommand{Namespace: site, Request: &pb.RequestRef{Owner: "ann", Key: "k"},
		Kind: &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: content("https://example.com/")}}}
	if got := commands.BucketFor(c); got != events.BucketOfKey([]byte("ann\x00k")) {
		t.Errorf("generated code: %d", got)
	}
	c.GetCreate().Dedupe = true
	if got := commands.BucketFor(c); got != events.BucketOfKey([]byte("ann\x00"+site+"\x00https://example.com/")) {
		t.Errorf("dedupe: %d", got)
	}
	c.Code = "abc"
	if got := commands.BucketFor(c); got != events.BucketOf(site, "abc") {
		t.Errorf("custom code: %d", got)
	}
	c.Kind = &pb.LinkCommand_Update{Update: &pb.UpdateLink{}}
	if got := commands.BucketFor(c); got != events.BucketOf(site, "abc") {
		t.Errorf("update: %d", got)
	}
}

func TestBodyHashAndFingerprint(t *testing.T) {
	c := &pb.LinkCommand{SchemaVersion: 1, Namespace: site, Request: &pb.RequestRef{Owner: "ann", Key: "k"},
		Kind: &pb.LinkCommand_Create{Create: &pb.CreateLink{Content: content("https://example.com/"), Dedupe: true}}}
	for name, x := range map[string]struct {
		change            func(*pb.LinkCommand)
		newBody, newPrint bool
	}{
		"who, when and what for": {func(c *pb.LinkCommand) {
			c.CommandId, c.TimeUs, c.ControlSeq, c.Actor, c.Request.Key = []byte{1}, 2, 3, "key:1", "k2"
		}, false, false},
		"owner":     {func(c *pb.LinkCommand) { c.Request.Owner = "bob" }, false, true},
		"namespace": {func(c *pb.LinkCommand) { c.Namespace = "o.example" }, true, true},
		"code":      {func(c *pb.LinkCommand) { c.Code = "abc" }, true, false},
		"target":    {func(c *pb.LinkCommand) { c.GetCreate().Content.Target = "https://example.com/2" }, true, true},
		"title":     {func(c *pb.LinkCommand) { c.GetCreate().Content.Title = "2" }, true, false},
		"length":    {func(c *pb.LinkCommand) { c.GetCreate().CodeLength = 9 }, true, false},
	} {
		other := proto.Clone(c).(*pb.LinkCommand)
		x.change(other)
		if got := !bytes.Equal(commands.BodyHash(other), commands.BodyHash(c)); got != x.newBody {
			t.Errorf("%s: another body: %v", name, got)
		}
		if got := !bytes.Equal(commands.Fingerprint(other), commands.Fingerprint(c)); got != x.newPrint {
			t.Errorf("%s: another fingerprint: %v", name, got)
		}
	}
	if c.GetCreate().Dedupe = false; commands.Fingerprint(c) != nil {
		t.Error("a fingerprint without dedupe")
	}
}
