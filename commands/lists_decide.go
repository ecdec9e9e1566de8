package commands

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/schemas/pb"
)

// MaxListEntries is how many entries a list can have, those included that expired and were not removed.
const MaxListEntries = 1_000_000

// decideAdd decides on a new or changed entry of a list. A change replaces all of the entry.
func decideAdd(c *Control, e *pb.ListEntry, nowUS int64) (*pb.Event, *Refusal) {
	if r := checkListEntry(c, e, nowUS); r != nil {
		return nil, r
	}
	old := c.Lists().Item(e.GetList(), e.GetKind(), e.GetValue())
	if old != nil && proto.Equal(old.ListEntry, e) {
		return nil, nil
	}
	if old == nil && c.Lists().size(e.GetList()) >= MaxListEntries {
		return nil, Refuse(CodeQuotaExceeded, "", fmt.Sprintf("the list has %d entries, which is its limit; remove some", MaxListEntries))
	}
	return &pb.Event{Kind: &pb.Event_ListEntryAdded{ListEntryAdded: &pb.ListEntryAdded{Entry: e}}}, nil
}

func (l *Lists) size(list pb.ListName) int {
	if l == nil {
		return 0
	}
	return l.counts[list]
}

func checkListEntry(c *Control, e *pb.ListEntry, nowUS int64) *Refusal {
	kinds := kindsOf[e.GetList()]
	if !slices.Contains(kinds, e.GetKind()) {
		return Refuse(CodeInvalidRequest, "kind", "the list has no entries of this kind; it has "+strings.Join(ListKinds(e.GetList()), ", "))
	}
	if normal, err := NormalizeListValue(e.GetKind(), e.GetValue(), c); err != nil {
		return asRefusal(err, CodeInvalidRequest, fieldValue)
	} else if normal != e.GetValue() {
		return refuseValue("the value is not in its normal form, %s", normal)
	}
	switch {
	case e.GetLegal() && e.GetList() != pb.ListName_DENYLIST:
		return Refuse(CodeInvalidRequest, "reason", "only the denylist has reasons")
	case TierName(e.GetTier()) == "" || e.GetTier() != pb.TrustTier_TRUST_STANDARD && e.GetList() != pb.ListName_TRUST:
		return Refuse(CodeInvalidRequest, "tier", "a tier is one of low, standard and high, and only entries of trust have one")
	case e.GetExpiresUs() < 0 || e.GetExpiresUs() > maxTimeUS:
		return Refuse(CodeInvalidRequest, FieldExpiresAt, "expires_at lies outside the years 1970 to 9999")
	case e.GetExpiresUs() != 0 && e.GetExpiresUs() <= nowUS:
		return Refuse(CodeInvalidRequest, FieldExpiresAt, "expires_at is past")
	}
	return checkText("note", e.GetNote(), MaxReason)
}

func decideRemove(c *Control, r *pb.RemoveListEntry) (*pb.Event, *Refusal) {
	if err := checkText("note", r.GetNote(), MaxReason); err != nil {
		return nil, err
	}
	old := c.Lists().Item(r.GetList(), r.GetKind(), r.GetValue())
	if old == nil {
		return nil, Refuse(CodeNotFound, "", "the list has no such entry")
	}
	return &pb.Event{Kind: &pb.Event_ListEntryRemoved{ListEntryRemoved: &pb.ListEntryRemoved{Entry: old.ListEntry, Note: r.GetNote()}}}, nil
}

// evolveLists folds an event of the lists that an envelope carries.
func evolveLists(l *Lists, event *pb.Event, e *pb.Envelope) *Lists {
	switch kind := event.GetKind().(type) {
	case *pb.Event_ListEntryAdded:
		if entry := kind.ListEntryAdded.GetEntry(); kindsOf[entry.GetList()] != nil {
			return l.with(&ListItem{ListEntry: entry, AddedUS: e.GetStamp().GetTimeUs(), Actor: e.GetActor(), Seq: e.GetSeq()})
		}
	case *pb.Event_ListEntryRemoved:
		if entry := kind.ListEntryRemoved.GetEntry(); kindsOf[entry.GetList()] != nil {
			return l.without(entry)
		}
	case *pb.Event_SwitchChanged:
		return l.switched(kind.SwitchChanged)
	}
	return l
}
