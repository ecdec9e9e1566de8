package commands_test

import (
	"bytes"
	"testing"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/schemas/pb"
)

func keyOf(id string, b byte, admin bool) *pb.ApiKey {
	return &pb.ApiKey{Id: id, Hash: bytes.Repeat([]byte{b}, 32), Owner: "ann", Admin: admin}
}

func revokeKey(id, note string) *pb.ControlCommand {
	return &pb.ControlCommand{Kind: &pb.ControlCommand_RevokeKey{RevokeKey: &pb.RevokeKey{Id: id, Note: note}}}
}

func TestKeysAreRevoked(t *testing.T) {
	first, second, plain := keyOf("first", 1, true), keyOf("second", 2, true), keyOf("plain", 3, false)
	given := []*pb.ControlCommand{addKey(first), addKey(second), addKey(plain)}
	c := controlled(t, given...)
	for name, k := range map[string]*pb.ApiKey{"first": first, "plain": plain} {
		if found := c.KeyByID(name); found == nil || found.Owner != k.Owner || found.Seq == 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
	after := controlled(t, append(given, revokeKey("first", "leaked"), revokeKey("plain", ""))...)
	if after.Key([32]byte(first.GetHash())) != nil || after.KeyByID("plain") != nil || after.Keys() != 1 || c.Keys() != 3 {
		t.Errorf("%d keys, %d before", after.Keys(), c.Keys())
	}
	for name, tried := range map[string]struct {
		command *pb.ControlCommand
		code    string
	}{
		"the last admin": {revokeKey("second", ""), commands.CodeForbidden},
		"revoked before": {revokeKey("first", ""), commands.CodeNotFound},
		"never there":    {revokeKey("nobody", ""), commands.CodeNotFound},
		"no id":          {revokeKey("", ""), commands.CodeNotFound},
		"a bad note":     {revokeKey("second", "a\x00b"), commands.CodeInvalidRequest},
		"an id is taken": {addKey(keyOf("second", 9, false)), commands.CodeUnavailable},
		"a bad new note": {addKey(&pb.ApiKey{Id: "n", Hash: make([]byte, 32), Owner: "ann", Note: "\n"}), commands.CodeInvalidRequest},
	} {
		if d := commands.DecideControl(after, tried.command, 0); d.Outcome.GetError() != tried.code || len(d.Events) != 0 {
			t.Errorf("%s: %v", name, d)
		}
	}
	changes := 0
	after.Changes(0, func(*commands.ControlChange) bool { changes++; return true })
	if changes != 5 {
		t.Errorf("%d changes in the history", changes)
	}
}

// What is drawn for a key is not part of what was asked for, so that a repeat is one.
func TestKeyBodyHash(t *testing.T) {
	hash := func(k *pb.ApiKey) string { return string(commands.ControlBodyHash(addKey(k))) }
	if hash(keyOf("a", 1, true)) != hash(keyOf("b", 2, true)) || hash(keyOf("a", 1, true)) == hash(keyOf("a", 1, false)) {
		t.Error("the hash is not that of owner, rights and note")
	}
}
