package events

import "github.com/hoplog/hoplog/schemas/pb"

// EventType returns the stable name of an event, as history and CloudEvents headers show it; "" if its kind is unknown.
func EventType(e *pb.Event) string {
	switch kind := e.GetKind().(type) {
	case *pb.Event_LinkCreated:
		return "link.created"
	case *pb.Event_LinkUpdated:
		return "link.updated"
	case *pb.Event_LinkStatusChanged:
		return statusType(kind.LinkStatusChanged.GetAction())
	case *pb.Event_DomainAdded:
		return "domain.added"
	case *pb.Event_DomainUpdated:
		return "domain.updated"
	case *pb.Event_KeyAdded:
		return "key.added"
	case *pb.Event_KeyRevoked:
		return "key.revoked"
	case *pb.Event_SegmentLeased:
		return "segment.leased"
	case *pb.Event_PermutationKeyAdded:
		return "permutation_key.added"
	case *pb.Event_ReservedWordsSet:
		return "reserved_words.set"
	case *pb.Event_ListEntryAdded:
		return listType(kind.ListEntryAdded.GetEntry().GetList(), "added")
	case *pb.Event_ListEntryRemoved:
		return listType(kind.ListEntryRemoved.GetEntry().GetList(), "removed")
	case *pb.Event_SwitchChanged:
		return switchType(kind.SwitchChanged.GetStep())
	}
	return ""
}

func listType(list pb.ListName, what string) string {
	switch list {
	case pb.ListName_DENYLIST:
		return "denylist." + what
	case pb.ListName_ALLOWLIST:
		return "allowlist." + what
	case pb.ListName_TRUST:
		return "trust." + what
	}
	return ""
}

func switchType(step pb.SwitchStep) string {
	switch step {
	case pb.SwitchStep_SWITCH_PROPOSED:
		return "switch.proposed"
	case pb.SwitchStep_SWITCH_TURNED:
		return "switch.turned"
	case pb.SwitchStep_SWITCH_WITHDRAWN:
		return "switch.withdrawn"
	}
	return ""
}

func statusType(action pb.StatusAction) string {
	switch action {
	case pb.StatusAction_DISABLE:
		return "link.disabled"
	case pb.StatusAction_ENABLE:
		return "link.enabled"
	case pb.StatusAction_BAN:
		return "link.banned"
	case pb.StatusAction_UNBAN:
		return "link.unbanned"
	case pb.StatusAction_DELETE:
		return "link.deleted"
	}
	return ""
}

// LinkOf returns the link that an event is about, nil for an event of the control stream.
func LinkOf(e *pb.Event) *pb.LinkRef {
	switch kind := e.GetKind().(type) {
	case *pb.Event_LinkCreated:
		return kind.LinkCreated.GetLink()
	case *pb.Event_LinkUpdated:
		return kind.LinkUpdated.GetLink()
	case *pb.Event_LinkStatusChanged:
		return kind.LinkStatusChanged.GetLink()
	}
	return nil
}

// VersionOf returns the version that a link has after the event, 0 for an event of the control stream.
func VersionOf(e *pb.Event) uint64 {
	switch kind := e.GetKind().(type) {
	case *pb.Event_LinkCreated:
		return 1
	case *pb.Event_LinkUpdated:
		return kind.LinkUpdated.GetVersion()
	case *pb.Event_LinkStatusChanged:
		return kind.LinkStatusChanged.GetVersion()
	}
	return 0
}
