package commands

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// CheckForm judges whether a decoded record is a command of this bucket at all. What fails it is answered, but nothing is
// kept under its request key.
func CheckForm(c *pb.LinkCommand, bucket uint32) *Refusal {
	if r := CheckRecord(c); r != nil {
		return r
	}
	switch {
	case !isText(c):
		return Refuse(CodeInvalidRequest, "", "owner, request key, actor, domain or code of the command is not valid UTF-8")
	case c.GetRequest().GetOwner() == "" || strings.Contains(c.GetRequest().GetOwner(), "\x00"):
		return Refuse(CodeInvalidRequest, "", "the command names no owner, or one with a NUL, which ends an owner in keys")
	case c.GetRequest().GetKey() == "" && c.GetCreate() != nil:
		return Refuse(CodeInvalidRequest, "", "a create needs a request key")
	case c.GetRequest().GetKey() != "" && len(c.GetRequest().GetBodyHash()) != 32:
		return Refuse(CodeInvalidRequest, "", "the command's body hash is not 32 bytes")
	case BucketFor(c) != bucket:
		return Refuse(CodeInvalidRequest, "", fmt.Sprintf("the command belongs to bucket %d, its record key says %d", BucketFor(c), bucket))
	}
	return nil
}

// isText reports whether the strings that no other rule judges are valid UTF-8, as every decoder but the one that is used
// here demands of an envelope that repeats them.
func isText(c *pb.LinkCommand) bool {
	for _, s := range []string{c.GetRequest().GetOwner(), c.GetRequest().GetKey(), c.GetActor(), c.GetNamespace(), c.GetCode()} {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return true
}

// Judge writes into the stamp what the control state says of a command, and the position it was read at.
func Judge(s *pb.Stamp, c *pb.LinkCommand, control *Control) {
	if control == nil {
		return
	}
	s.ControlSeq = control.Seq
	if domain := control.Resolve(c.GetNamespace()); domain != nil && domain.GetNamespace() == c.GetNamespace() {
		s.DomainKnown, s.DomainOwner = true, domain.GetOwner()
	}
	s.ReservedCode = c.GetCreate() != nil && control.Reserved(c.GetCode())
	content := c.GetCreate().GetContent()
	if update := c.GetUpdate(); update != nil {
		content = update.GetContent()
	}
	s.TargetIsOwn, s.TargetBlocked = judgeURL(control, content.GetTarget(), s.GetTimeUs())
	s.ExpiredIsOwn, s.ExpiredBlocked = judgeURL(control, content.GetExpiredUrl(), s.GetTimeUs())
}

// judgeURL says whether a URL is on one of our own short domains, and which list its host is on.
func judgeURL(control *Control, url string, timeUS int64) (own bool, blocked string) {
	if url == "" {
		return false, ""
	}
	if denial := control.Lists().Target(url, timeUS); denial != nil {
		blocked = denial.Name()
	}
	return control.Resolve(TargetHost(url)) != nil, blocked
}

// WantsCandidate reports whether the decision on a command may need an id, and a code unless it brings its own. Nothing is
// drawn for domains that are not ours: whoever may send can name any number of them, of any length.
func WantsCandidate(s State, c LinkCommand) bool {
	if c.GetCreate() == nil || c.Stamp.GetFailed() != "" || !c.Stamp.GetDomainKnown() || counts(s.Twin, c) {
		return false
	}
	_, met := replay(s.Request, c)
	return !met
}

// CheckRecord judges whether a decoded record is a command that this writer understands: all that control commands
// must keep, and link commands too.
func CheckRecord(c interface {
	GetSchemaVersion() uint32
	GetCommandId() []byte
}) *Refusal {
	if v := c.GetSchemaVersion(); v == 0 || v > events.SchemaVersion {
		return Refuse(CodeInvalidRequest, "", fmt.Sprintf("the command is of schema version %d, this writer knows 1 to %d", v, events.SchemaVersion))
	}
	if len(c.GetCommandId()) != 16 {
		return Refuse(CodeInvalidRequest, "", "the command's id is not 16 bytes")
	}
	return nil
}
