package commands

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// SegmentLimit is the most ids that one lease can hold.
const SegmentLimit = 1 << 32

// builtinReserved are codes that every domain answers itself.
var builtinReserved = map[string]struct{}{"robots.txt": {}, "favicon.ico": {}}

// Control is the fold of the control log: what every role must know about domains, keys, ids and words. A Control is
// never changed: folding returns a new one, so a reader may keep it as long as it likes. The nil Control is the state
// before the first envelope.
type Control struct {
	// Seq is the sequence of the last envelope folded: the control position.
	Seq     uint64
	domains map[string]*pb.Domain
	// names leads from a domain's namespace and from its aliases to the domain.
	names    map[string]*pb.Domain
	fallback *pb.Domain
	// domainSeqs are the control positions of the domains' last changes.
	domainSeqs map[string]uint64
	keys       map[[32]byte]*KeyItem
	next       map[uint32]uint64
	codeKeys   []*pb.PermutationKey
	reserved   map[string]struct{}
	lists      *Lists
	switches   [len(TrustTiers)]Switch
	changes    controlChanges
	requests   controlRequests
	// lean: changes and requests are not kept.
	lean bool
}

// LeanControl is the state before the first envelope for those who only obey: folded on, it keeps neither the history of lists
// nor what was stored under request keys, which is most of what a long list needs.
func LeanControl() *Control { return &Control{lean: true} }

// Lists returns the lists; nil while they are empty, which can be used like any other.
func (c *Control) Lists() *Lists {
	if c == nil {
		return nil
	}
	return c.lists
}

// Resolve returns the domain that a normalised namespace names, itself or by an alias; nil if none does.
func (c *Control) Resolve(namespace string) *pb.Domain {
	if c == nil {
		return nil
	}
	return c.names[namespace]
}

// DefaultDomain returns the domain of a create that names none; nil before there is one.
func (c *Control) DefaultDomain() *pb.Domain {
	if c == nil {
		return nil
	}
	return c.fallback
}

// Domains returns all domains by namespace. The map must not be changed.
func (c *Control) Domains() map[string]*pb.Domain {
	if c == nil {
		return nil
	}
	return c.domains
}

// PermutationKeys returns all versions of the code permutation's key, oldest first.
func (c *Control) PermutationKeys() []*pb.PermutationKey {
	if c == nil {
		return nil
	}
	return c.codeKeys
}

// NextID returns the first id of a space that no segment holds.
func (c *Control) NextID(space uint32) uint64 {
	if c == nil || c.next[space] == 0 {
		return 1
	}
	return c.next[space]
}

// Reserved reports whether a code is a reserved word.
func (c *Control) Reserved(code string) bool {
	if _, yes := builtinReserved[code]; yes || c == nil {
		return yes
	}
	_, yes := c.reserved[code]
	return yes
}

// EvolveControl folds one accepted envelope of the control stream and returns the new state.
func EvolveControl(c *Control, e *pb.Envelope) *Control {
	next := &Control{}
	if c != nil {
		*next = *c
	}
	next.Seq = e.GetSeq()
	for _, event := range e.GetEvents() {
		next.apply(event, e)
		next.applyLists(event, e)
	}
	if !next.lean {
		next.requests = next.requests.with(e)
	}
	return next
}

// applyLists folds what happens to lists and switches, and keeps it, and what happens to keys and to settings of domains, in the history.
func (c *Control) applyLists(event *pb.Event, e *pb.Envelope) {
	switch kind := event.GetKind().(type) {
	case *pb.Event_ListEntryAdded, *pb.Event_ListEntryRemoved, *pb.Event_KeyAdded, *pb.Event_KeyRevoked, *pb.Event_DomainUpdated:
	case *pb.Event_SwitchChanged:
		tier := kind.SwitchChanged.GetTier()
		if TierName(tier) == "" {
			return
		}
		c.switches[tier] = evolveSwitch(c.switches[tier], kind.SwitchChanged, e.GetActor(), e.GetStamp().GetTimeUs())
	default:
		return
	}
	c.lists = evolveLists(c.lists, event, e)
	if c.lean {
		return
	}
	c.changes = c.changes.with(&ControlChange{Event: event, TimeUS: e.GetStamp().GetTimeUs(), Actor: e.GetActor(), Seq: e.GetSeq()})
}

func (c *Control) apply(event *pb.Event, e *pb.Envelope) {
	switch kind := event.GetKind().(type) {
	case *pb.Event_DomainAdded:
		c.putDomain(kind.DomainAdded.GetDomain(), e.GetSeq())
	case *pb.Event_DomainUpdated:
		c.putDomain(kind.DomainUpdated.GetDomain(), e.GetSeq())
	case *pb.Event_KeyAdded:
		item := &KeyItem{ApiKey: kind.KeyAdded.GetKey(), AddedUS: e.GetStamp().GetTimeUs(), Actor: e.GetActor(), Seq: e.GetSeq()}
		c.keys = with(c.keys, [32]byte(item.GetHash()), item)
	case *pb.Event_KeyRevoked:
		c.keys = maps.Clone(c.keys)
		delete(c.keys, [32]byte(kind.KeyRevoked.GetKey().GetHash()))
	case *pb.Event_SegmentLeased:
		c.next = with(c.next, kind.SegmentLeased.GetSegment().GetSpace(), kind.SegmentLeased.GetSegment().GetTo())
	case *pb.Event_PermutationKeyAdded:
		c.codeKeys = append(slices.Clone(c.codeKeys), kind.PermutationKeyAdded.GetKey())
	case *pb.Event_ReservedWordsSet:
		c.reserved = map[string]struct{}{}
		for _, word := range kind.ReservedWordsSet.GetWords().GetWords() {
			c.reserved[word] = struct{}{}
		}
	}
}

// with returns a copy of m that holds value under key.
func with[K comparable, V any](m map[K]V, key K, value V) map[K]V {
	next := make(map[K]V, len(m)+1)
	maps.Copy(next, m)
	next[key] = value
	return next
}

// DecideControl decides a control command at a stamped time in microseconds. The request key, if there is one, comes before
// any other rule. What is so already is no event and no error.
func DecideControl(c *Control, command *pb.ControlCommand, nowUS int64) Decision {
	if err := checkControlRequest(command.GetRequest()); err != nil {
		return err.Decision()
	}
	if d, met := replayControl(c.Request(command.GetRequest().GetOwner(), command.GetRequest().GetKey()), command.GetRequest(), nowUS); met {
		return d
	}
	event, err := decideControl(c, command, nowUS)
	if err != nil {
		return err.Decision()
	}
	d := Decision{Outcome: &pb.Outcome{}}
	if event != nil {
		d.Events = []*pb.Event{event}
	}
	return d
}

func decideControl(c *Control, command *pb.ControlCommand, nowUS int64) (*pb.Event, *Refusal) {
	switch kind := command.GetKind().(type) {
	case *pb.ControlCommand_AddDomain:
		return decideDomain(c, kind.AddDomain)
	case *pb.ControlCommand_UpdateDomain:
		return decideDomainUpdate(c, kind.UpdateDomain, nowUS)
	case *pb.ControlCommand_AddKey:
		return decideKey(c, kind.AddKey)
	case *pb.ControlCommand_RevokeKey:
		return decideRevoke(c, kind.RevokeKey)
	case *pb.ControlCommand_LeaseSegment:
		return decideLease(c, kind.LeaseSegment)
	case *pb.ControlCommand_AddPermutationKey:
		return decidePermutationKey(c, kind.AddPermutationKey)
	case *pb.ControlCommand_SetReservedWords:
		return decideReserved(c, kind.SetReservedWords)
	case *pb.ControlCommand_AddListEntry:
		return decideAdd(c, kind.AddListEntry, nowUS)
	case *pb.ControlCommand_RemoveListEntry:
		return decideRemove(c, kind.RemoveListEntry)
	case *pb.ControlCommand_ChangeSwitch:
		return decideSwitch(c, kind.ChangeSwitch, command.GetActor(), nowUS)
	}
	return nil, Refuse(CodeInvalidRequest, "", "the command asks for nothing that is known")
}

// checkNames checks names of owners and keys, which stand in the keys of every store, ended by a NUL.
func checkNames(names ...string) *Refusal {
	for _, name := range names {
		if err := checkText("owner", name, MaxOwner); err != nil {
			return err
		}
	}
	return nil
}

func decideLease(c *Control, lease *pb.LeaseSegment) (*pb.Event, *Refusal) {
	if lease.GetSize() == 0 || lease.GetSize() > SegmentLimit {
		return nil, Refuse(CodeInvalidRequest, "size", "a segment holds 1 to 2^32 ids")
	}
	from := c.NextID(lease.GetSpace())
	segment := &pb.Segment{Space: lease.GetSpace(), From: from, To: from + lease.GetSize(), Holder: lease.GetHolder()}
	return &pb.Event{Kind: &pb.Event_SegmentLeased{SegmentLeased: &pb.SegmentLeased{Segment: segment}}}, nil
}

func decidePermutationKey(c *Control, key *pb.PermutationKey) (*pb.Event, *Refusal) {
	have := c.PermutationKeys()
	if i := int(key.GetVersion()) - 1; i >= 0 && i < len(have) && bytes.Equal(have[i].GetKey(), key.GetKey()) {
		return nil, nil
	}
	if len(key.GetKey()) != 16 || int(key.GetVersion()) != len(have)+1 {
		return nil, Refuse(CodeInvalidRequest, "version", fmt.Sprintf("the next key has 16 bytes and version %d", len(have)+1))
	}
	return &pb.Event{Kind: &pb.Event_PermutationKeyAdded{PermutationKeyAdded: &pb.PermutationKeyAdded{Key: key}}}, nil
}

func decideReserved(c *Control, words *pb.ReservedWords) (*pb.Event, *Refusal) {
	for _, word := range words.GetWords() {
		if normal, err := events.NormalizeCode(word); err != nil || normal != word {
			return nil, Refuse(CodeInvalidRequest, "words", fmt.Sprintf("%.80q is not a code", word))
		}
	}
	if sameWords(c, words.GetWords()) {
		return nil, nil
	}
	return &pb.Event{Kind: &pb.Event_ReservedWordsSet{ReservedWordsSet: &pb.ReservedWordsSet{Words: words}}}, nil
}

func sameWords(c *Control, words []string) bool {
	distinct := map[string]struct{}{}
	for _, word := range words {
		distinct[word] = struct{}{}
	}
	return c != nil && maps.Equal(distinct, c.reserved)
}
