package commands

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// KeyTTL is how long a request key counts, in microseconds of stamped time. Clients are promised a day less.
const KeyTTL = 8 * 24 * 3600 * 1_000_000

// KeyCounts reports whether a request key that was stored at one stamped time still counts at another; microseconds.
func KeyCounts(storedUS, atUS int64) bool { return atUS-storedUS < KeyTTL }

// State is what a bucket knows of the things that one command concerns. Its zero value: nothing happened yet. Messages in
// it are never changed in place.
type State struct {
	// Link is the link at the command's route key: the addressed code, or the candidate drawn for a create.
	Link *pb.Link
	// Request is the stored outcome of the command's request key.
	Request *pb.StoredRequest
	// Twin is the link that the fingerprint of a create with dedupe points to.
	Twin *pb.Link
}

// LinkCommand is a stamped command as its bucket's writer decides it.
type LinkCommand struct {
	*pb.LinkCommand
	// Bucket is the record key's.
	Bucket uint32
	Stamp  *pb.Stamp
}

// Decision is what a command leads to: events and the outcome that its sender is told. A refusal has no events.
type Decision struct {
	Events  []*pb.Event
	Outcome *pb.Outcome
}

// Evolve folds one accepted envelope into the state that it was decided on.
func Evolve(s State, e *pb.Envelope) State {
	for _, event := range e.GetEvents() {
		s.Link = EvolveLink(s.Link, event, e.GetStamp().GetTimeUs())
	}
	if Stores(e) {
		s.Request = &pb.StoredRequest{BodyHash: e.GetRequest().GetBodyHash(), TimeUs: e.GetStamp().GetTimeUs(), Outcome: e.GetOutcome()}
	}
	return s
}

// EvolveLink folds one event, stamped with this time, into a link's record and returns the new record.
func EvolveLink(link *pb.Link, event *pb.Event, timeUS int64) *pb.Link {
	switch kind := event.GetKind().(type) {
	case *pb.Event_LinkCreated:
		e := kind.LinkCreated
		return &pb.Link{Ref: e.GetLink(), Content: e.GetContent(), Fingerprint: e.GetFingerprint(), Version: 1, CreatedUs: timeUS, UpdatedUs: timeUS}
	case *pb.Event_LinkUpdated:
		next := changedAt(link, kind.LinkUpdated.GetVersion(), timeUS)
		next.Content = kind.LinkUpdated.GetContent()
		return next
	case *pb.Event_LinkStatusChanged:
		e := kind.LinkStatusChanged
		next := changedAt(link, e.GetVersion(), timeUS)
		evolveStatus(next, e)
		return next
	}
	return link
}

func changedAt(link *pb.Link, version uint64, timeUS int64) *pb.Link {
	return &pb.Link{Ref: link.GetRef(), Content: link.GetContent(), Fingerprint: link.GetFingerprint(), Version: version,
		Disabled: link.GetDisabled(), Banned: link.GetBanned(), BannedLegal: link.GetBannedLegal(), Deleted: link.GetDeleted(),
		CreatedUs: link.GetCreatedUs(), UpdatedUs: timeUS}
}

func evolveStatus(link *pb.Link, e *pb.LinkStatusChanged) {
	switch e.GetAction() {
	case pb.StatusAction_DISABLE:
		link.Disabled = true
	case pb.StatusAction_ENABLE:
		link.Disabled = false
	case pb.StatusAction_BAN:
		link.Banned, link.BannedLegal = true, e.GetLegal()
	case pb.StatusAction_UNBAN:
		link.Banned, link.BannedLegal = false, false
	case pb.StatusAction_DELETE:
		link.Deleted = true
	}
}

// Stores reports whether an envelope's outcome is kept under its request key. What a repeat meets, and what says nothing
// of the request itself, is not.
func Stores(e *pb.Envelope) bool {
	if e.GetRequest().GetKey() == "" || e.GetOutcome().GetReplayed() {
		return false
	}
	switch e.GetOutcome().GetError() {
	case CodeIdempotencyKeyReused, CodeUnavailable, CodeQuotaExceeded, CodeCommandExpired:
		return false
	}
	return true
}

// Decide decides a stamped command on its bucket's state. The request key comes before any other rule.
func Decide(s State, c LinkCommand) Decision {
	if d, met := replay(s.Request, c); met {
		return d
	}
	if c.Stamp.GetFailed() != "" {
		return refused(c, Failed(c.Stamp.GetFailed()))
	}
	var d Decision
	var err *Refusal
	switch kind := c.GetKind().(type) {
	case *pb.LinkCommand_Create:
		d, err = decideCreate(s, c, kind.Create)
	case *pb.LinkCommand_Update:
		d, err = decideUpdate(s, c, kind.Update)
	case *pb.LinkCommand_ChangeStatus:
		d, err = decideStatus(s, c, kind.ChangeStatus)
	default:
		err = Refuse(CodeInvalidRequest, "", "the command asks for nothing that is known")
	}
	if err != nil {
		return refused(c, err)
	}
	return d
}

// replay answers a request whose key was met before.
func replay(stored *pb.StoredRequest, c LinkCommand) (Decision, bool) {
	if stored == nil || !KeyCounts(stored.GetTimeUs(), c.Stamp.GetTimeUs()) {
		return Decision{}, false
	}
	if !bytes.Equal(stored.GetBodyHash(), c.GetRequest().GetBodyHash()) {
		return refused(c, Refuse(CodeIdempotencyKeyReused, "", "this Idempotency-Key was used for another request; use a new key")), true
	}
	was := stored.GetOutcome()
	return Decision{Outcome: &pb.Outcome{Error: was.GetError(), Detail: was.GetDetail(), Field: was.GetField(), Namespace: was.GetNamespace(),
		Code: was.GetCode(), Version: was.GetVersion(), Existing: was.GetExisting(), Replayed: true}}, true
}

func decideCreate(s State, c LinkCommand, create *pb.CreateLink) (Decision, *Refusal) {
	if err := checkCreate(c); err != nil {
		return Decision{}, err
	}
	if create.GetDedupe() && counts(s.Twin, c) {
		d := at(s.Twin)
		d.Outcome.Existing = true
		return d, nil
	}
	code := c.GetCode()
	if code == "" {
		code = c.Stamp.GetCandidateCode()
	}
	if s.Link != nil {
		return Decision{}, Refuse(CodeCodeTaken, "code", fmt.Sprintf("the code %q is taken on %s, or was", code, c.GetNamespace()))
	}
	if c.Stamp.GetCandidateId() == 0 || code == "" {
		return Decision{}, Refuse(CodeUnavailable, "", "no id could be drawn; try again")
	}
	if events.BucketOf(c.GetNamespace(), code) != c.Bucket {
		return Decision{}, Refuse(CodeInvalidRequest, "code", "the code routes to another bucket than the command's")
	}
	link := &pb.LinkRef{LinkId: c.Stamp.GetCandidateId(), Namespace: c.GetNamespace(), Code: code, Owner: c.GetRequest().GetOwner()}
	event := &pb.Event{Kind: &pb.Event_LinkCreated{LinkCreated: &pb.LinkCreated{Link: link, Content: create.GetContent(), Fingerprint: Fingerprint(c.LinkCommand)}}}
	return Decision{[]*pb.Event{event}, &pb.Outcome{Namespace: link.GetNamespace(), Code: code, Version: 1}}, nil
}

// checkCreate judges all of a create that does not depend on the bucket's state.
func checkCreate(c LinkCommand) *Refusal {
	owner, shared := c.Stamp.GetDomainOwner(), c.Stamp.GetDomainOwner() == ""
	if !c.Stamp.GetDomainKnown() || !shared && owner != c.GetRequest().GetOwner() {
		return Refuse(CodeDomainNotOwned, "domain", fmt.Sprintf("the domain %s is not one of yours", c.GetNamespace()))
	}
	if r := CheckCreate(c.LinkCommand); r != nil {
		return r
	}
	if c.Stamp.GetReservedCode() {
		return Refuse(CodeReservedCode, "code", fmt.Sprintf("the code %q is reserved", c.GetCode()))
	}
	if r := checkTargetHost(c.Stamp); r != nil {
		return r
	}
	return checkExpiredHost(c.Stamp)
}

// CheckCreate judges the form of a create: what the sender can know to be wrong before it sends it.
func CheckCreate(c *pb.LinkCommand) *Refusal {
	create := c.GetCreate()
	if c.GetCode() != "" {
		if r := checkCode(c.GetCode(), create); r != nil {
			return r
		}
	}
	if n := create.GetCodeLength(); n != 0 && (n < MinCodeLength || n > MaxCodeLength) {
		return Refuse(CodeInvalidRequest, "code_length", fmt.Sprintf("code_length is %d to %d", MinCodeLength, MaxCodeLength))
	}
	if n := create.GetCodeLength(); create.GetCodeMode() == pb.CodeMode_CODE_MODE_RANDOM && n != 0 && n < MinRandomLength {
		return Refuse(CodeInvalidRequest, "code_length", fmt.Sprintf("a random code has at least %d characters: a shorter one is guessed too easily", MinRandomLength))
	}
	return CheckContent(create.GetContent())
}

func checkCode(code string, create *pb.CreateLink) *Refusal {
	if normal, err := events.NormalizeCode(code); err != nil {
		return asRefusal(err, CodeInvalidCode, "code")
	} else if normal != code {
		return Refuse(CodeInvalidCode, "code", "the code is not in its normal form")
	}
	if create.GetDedupe() {
		return Refuse(CodeInvalidRequest, "dedupe", "dedupe is for generated codes; leave out code or dedupe")
	}
	if create.GetCodeLength() != 0 {
		return Refuse(CodeInvalidRequest, "code_length", "code_length is for generated codes; leave out code or code_length")
	}
	return nil
}

// checkTargetHost judges a new target by what the stamp says of its host.
func checkTargetHost(stamp *pb.Stamp) *Refusal {
	if stamp.GetTargetIsOwn() {
		return Refuse(CodeInvalidTarget, FieldTarget, "the target is on one of our own short domains, which would be a loop")
	}
	if list := stamp.GetTargetBlocked(); list != "" {
		return Refuse(CodeTargetBlocked, FieldTarget, "the target's host is on a list: "+list)
	}
	return nil
}

// checkExpiredHost judges a new expired_url as checkTargetHost does a target.
func checkExpiredHost(stamp *pb.Stamp) *Refusal {
	if stamp.GetExpiredIsOwn() {
		return Refuse(CodeInvalidTarget, FieldExpiredURL, "expired_url is on one of our own short domains, which would be a loop")
	}
	if list := stamp.GetExpiredBlocked(); list != "" {
		return Refuse(CodeTargetBlocked, FieldExpiredURL, "the host of expired_url is on a list: "+list)
	}
	return nil
}

// counts reports whether the link that a fingerprint points to answers a create with dedupe: it is active and still has
// this target and owner.
func counts(twin *pb.Link, c LinkCommand) bool {
	now, content := c.Stamp.GetTimeUs(), twin.GetContent()
	active := twin != nil && !twin.GetDeleted() && !twin.GetBanned() && !twin.GetDisabled() &&
		content.GetNotBeforeUs() <= now && (content.GetExpiresUs() == 0 || content.GetExpiresUs() > now)
	return active && content.GetTarget() == c.GetCreate().GetContent().GetTarget() && twin.GetRef().GetOwner() == c.GetRequest().GetOwner()
}

func decideUpdate(s State, c LinkCommand, update *pb.UpdateLink) (Decision, *Refusal) {
	if err := checkAddressed(s.Link, c, update.GetReason(), update.GetIfVersion(), update.GetOrVersions()); err != nil {
		return Decision{}, err
	}
	content, err := merged(s.Link.GetContent(), update.GetContent(), update.GetFields())
	if err != nil {
		return Decision{}, err
	}
	if err := CheckContent(content); err != nil {
		return Decision{}, err
	}
	if slices.Contains(update.GetFields(), FieldTarget) {
		if err := checkTargetHost(c.Stamp); err != nil {
			return Decision{}, err
		}
	}
	if slices.Contains(update.GetFields(), FieldExpiredURL) {
		if err := checkExpiredHost(c.Stamp); err != nil {
			return Decision{}, err
		}
	}
	changed := ChangedFields(s.Link.GetContent(), content)
	if len(changed) == 0 {
		return at(s.Link), nil
	}
	version := s.Link.GetVersion() + 1
	return changes(s.Link, version, &pb.Event{Kind: &pb.Event_LinkUpdated{LinkUpdated: &pb.LinkUpdated{
		Link: s.Link.GetRef(), Version: version, Content: content, Changed: changed, Reason: update.GetReason()}}}), nil
}

func decideStatus(s State, c LinkCommand, change *pb.ChangeLinkStatus) (Decision, *Refusal) {
	if err := checkAddressed(s.Link, c, change.GetReason(), change.GetIfVersion(), change.GetOrVersions()); err != nil {
		return Decision{}, err
	}
	if _, known := pb.StatusAction_name[int32(change.GetAction())]; !known || change.GetAction() == pb.StatusAction_STATUS_ACTION_UNSPECIFIED {
		return Decision{}, Refuse(CodeInvalidRequest, "action", "the command asks for no known change of status")
	}
	event := &pb.LinkStatusChanged{Link: s.Link.GetRef(), Version: s.Link.GetVersion() + 1, Action: change.GetAction(), Reason: change.GetReason()}
	event.Legal = change.GetLegal() && change.GetAction() == pb.StatusAction_BAN
	next := changedAt(s.Link, s.Link.GetVersion(), 0)
	evolveStatus(next, event)
	same := next.GetDisabled() == s.Link.GetDisabled() && next.GetBanned() == s.Link.GetBanned() &&
		next.GetBannedLegal() == s.Link.GetBannedLegal() && next.GetDeleted() == s.Link.GetDeleted()
	if same {
		return at(s.Link), nil
	}
	return changes(s.Link, event.GetVersion(), &pb.Event{Kind: &pb.Event_LinkStatusChanged{LinkStatusChanged: event}}), nil
}

// checkAddressed judges what every command on an existing link has in common. Foreign links are not there for the caller.
func checkAddressed(link *pb.Link, c LinkCommand, reason string, ifVersion uint64, orVersions []uint64) *Refusal {
	if events.BucketOf(c.GetNamespace(), c.GetCode()) != c.Bucket {
		return Refuse(CodeInvalidRequest, "code", "the code routes to another bucket than the command's")
	}
	if err := CheckReason(reason); err != nil {
		return err
	}
	if link == nil || link.GetDeleted() || link.GetRef().GetOwner() != c.GetRequest().GetOwner() {
		return Refuse(CodeNotFound, "", fmt.Sprintf("there is no link %s/%s", c.GetNamespace(), c.GetCode()))
	}
	return checkVersion("link", link.GetVersion(), ifVersion, orVersions)
}

// at is the decision that nothing changes: the link stays as it is.
func at(link *pb.Link) Decision { return changes(link, link.GetVersion()) }

func changes(link *pb.Link, version uint64, list ...*pb.Event) Decision {
	return Decision{list, &pb.Outcome{Namespace: link.GetRef().GetNamespace(), Code: link.GetRef().GetCode(), Version: version}}
}

func refused(c LinkCommand, r *Refusal) Decision {
	d := r.Decision()
	d.Outcome.Namespace, d.Outcome.Code = c.GetNamespace(), c.GetCode()
	return d
}

// Failed is the refusal of a command that its writer could not stamp, for the reason that the stamp gives.
func Failed(code string) *Refusal {
	if code == CodeCommandExpired {
		return Refuse(code, "", "the command's time is more than 24 hours before or 60 seconds after the writer's; check the clocks and try again")
	}
	return Refuse(code, "", "what the decision needs cannot be had now; try again")
}

// asRefusal gives an error of a rule its stable code; an error that is a Refusal already stays what it is.
func asRefusal(err error, code, field string) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return Refuse(code, field, err.Error())
}
