package effects

import (
	"strings"
	"time"

	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Concern is something of the control log because of which links may be answered otherwise than before, by answers that may
// still lie in caches.
type Concern struct {
	List  string `json:"list"` // denylist, allowlist, trust or switch
	Kind  string `json:"kind"` // as entries of lists have it; of a switch: tier
	Value string `json:"value"`
}

// String says it in words: "denylist: host evil.example".
func (c Concern) String() string { return c.List + ": " + c.Kind + " " + c.Value }

const (
	concernSwitch = "switch"
	concernTier   = "tier"
)

// concernsOf returns what of an envelope of the control log concerns answers in caches. Those are redirects that were let through,
// for every refusal and every page forbids to be kept. So what only lets through what was refused concerns none. Neither does a
// denied network: a cache answers without knowing for whom. Nor the low tier's switch: nobody may keep an answer of that tier,
// and a link that falls into it is a concern of its own. Nor a domain's settings: its not-found URL is kept by nobody.
func concernsOf(e *events.Envelope) (list []Concern) {
	for _, event := range e.GetEvents() {
		switch kind := event.GetKind().(type) {
		case *pb.Event_ListEntryAdded:
			if entry := kind.ListEntryAdded.GetEntry(); addedConcerns(entry) {
				list = append(list, entryConcern(entry))
			}
		case *pb.Event_ListEntryRemoved:
			if entry := kind.ListEntryRemoved.GetEntry(); entry.GetList() == pb.ListName_TRUST || entry.GetList() == pb.ListName_ALLOWLIST {
				list = append(list, entryConcern(entry))
			}
		case *pb.Event_SwitchChanged:
			c := kind.SwitchChanged
			if c.GetClosed() && c.GetStep() == pb.SwitchStep_SWITCH_TURNED && c.GetTier() != pb.TrustTier_TRUST_LOW {
				list = append(list, Concern{concernSwitch, concernTier, commands.TierName(c.GetTier())})
			}
		}
	}
	return list
}

// addedConcerns: an entry that allows, and ends, makes answers last less long than those that were given before.
func addedConcerns(e *pb.ListEntry) bool {
	switch e.GetList() {
	case pb.ListName_DENYLIST:
		return e.GetKind() != pb.ListKind_LIST_NETWORK
	case pb.ListName_ALLOWLIST:
		return e.GetExpiresUs() != 0
	}
	return e.GetList() == pb.ListName_TRUST
}

func entryConcern(e *pb.ListEntry) Concern {
	return Concern{commands.ListNameOf(e.GetList()), commands.ListKindOf(e.GetKind()), e.GetValue()}
}

// cause is a concern and the change of the control log that it is of.
type cause struct {
	Concern
	of *Change
}

// search is what many concerns look for, so that one reading of the links serves them all.
type search struct {
	codes    []cause           // whose link is known
	hosts    map[string]*cause // of targets: denied, or no longer allowed
	suffixes map[string]*cause
	owners   map[uint64]*cause // trust in them changed
	tiers    map[pb.TrustTier]*cause
}

// searchFor ignores what it does not know: a letter of a newer release.
func searchFor(changes []*Change) *search {
	s := &search{hosts: map[string]*cause{}, suffixes: map[string]*cause{}, owners: map[uint64]*cause{}, tiers: map[pb.TrustTier]*cause{}}
	for _, change := range changes {
		for _, concern := range change.Lists {
			s.add(cause{concern, change})
		}
	}
	return s
}

func (s *search) add(c cause) {
	switch c.Kind {
	case commands.ListKindOf(pb.ListKind_LIST_CODE):
		s.codes = append(s.codes, c)
	case commands.ListKindOf(pb.ListKind_LIST_HOST):
		s.hosts[c.Value] = &c
	case commands.ListKindOf(pb.ListKind_LIST_HOST_SUFFIX):
		s.suffixes[c.Value] = &c
	case commands.ListKindOf(pb.ListKind_LIST_OWNER):
		s.owners[events.OwnerHash(c.Value)] = &c
	case concernTier:
		if tier, ok := commands.ParseTier(c.Value); ok {
			s.tiers[tier] = &c
		}
	}
}

// reads reports whether all links have to be looked at.
func (s *search) reads() bool { return len(s.hosts)+len(s.suffixes)+len(s.owners)+len(s.tiers) > 0 }

// causeOf returns what of the search concerns a link whose answers in caches are not what they should be; nil: nothing does.
func (s *search) causeOf(routeKey []byte, link *pb.Redirect, lists *commands.Lists, nowUS int64) *cause {
	c := s.byHost(link.GetTarget())
	if c == nil {
		c = s.owners[link.GetOwner()]
	}
	if c == nil && len(s.tiers) > 0 {
		c = s.tiers[lists.Tier(routeKey, link.GetOwner(), nowUS)]
	}
	if c == nil || lasting(routeKey, link, lists, nowUS) {
		return nil
	}
	return c
}

func (s *search) byHost(target string) *cause {
	if len(s.hosts)+len(s.suffixes) == 0 {
		return nil
	}
	host := commands.ListHost(target)
	if c := s.hosts[host]; c != nil {
		return c
	}
	for len(s.suffixes) > 0 {
		if c := s.suffixes[host]; c != nil {
			return c
		}
		_, rest, found := strings.Cut(host, ".")
		if !found {
			break
		}
		host = rest
	}
	return nil
}

// lasting reports whether a link, active or not, is let through by answers that may be kept for as long as the link says. The
// lists as they are decide, not what an entry says: it may be gone again, or overruled, or never have counted.
func lasting(routeKey []byte, link *pb.Redirect, lists *commands.Lists, nowUS int64) bool {
	fresh := func() time.Duration { return 0 }
	return lists.Code(routeKey, nowUS) == nil && deny.Target(lists, link.GetTarget(), nowUS).Serves() &&
		deny.Trust(lists, routeKey, link.GetOwner(), nowUS, fresh, time.Second) == deny.Pass &&
		lists.Until(routeKey, link.GetOwner(), link.GetTarget(), nowUS) == 0
}
