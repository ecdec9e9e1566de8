package commands

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// FieldNotFoundURL names the setting of a domain that an update may change, as requests and history show it.
const FieldNotFoundURL = "not_found_url"

// NotFoundURL returns where a domain sends visitors of codes that do not exist, "" if nowhere.
func (c *Control) NotFoundURL(namespace string) string {
	return c.Domains()[namespace].GetNotFoundUrl()
}

// DomainSeq returns the control position of a domain's last change, which is the domain's version; 0: there is no such domain.
func (c *Control) DomainSeq(namespace string) uint64 {
	if c == nil {
		return 0
	}
	return c.domainSeqs[namespace]
}

// putDomain folds a domain as it is from a control position on. Its names never change.
func (c *Control) putDomain(d *pb.Domain, seq uint64) {
	c.domainSeqs = with(c.domainSeqs, d.GetNamespace(), seq)
	c.domains = with(c.domains, d.GetNamespace(), d)
	c.names = with(c.names, d.GetNamespace(), d)
	for _, alias := range d.GetAliases() {
		c.names = with(c.names, alias, d)
	}
	if d.GetIsDefault() {
		c.fallback = d
	}
}

func decideDomain(c *Control, d *pb.Domain) (*pb.Event, *Refusal) {
	for _, name := range append([]string{d.GetNamespace()}, d.GetAliases()...) {
		if normal, err := events.NormalizeNamespace(name); err != nil || normal != name {
			return nil, Refuse(CodeInvalidRequest, "domain", fmt.Sprintf("%.80q is not a normalised domain", name))
		}
	}
	if err := checkNames(d.GetOwner()); err != nil {
		return nil, err
	}
	if old := c.Domains()[d.GetNamespace()]; old != nil && proto.Equal(old, d) {
		return nil, nil
	}
	for _, name := range append([]string{d.GetNamespace()}, d.GetAliases()...) {
		if c.Resolve(name) != nil {
			return nil, Refuse(CodeInvalidRequest, "domain", fmt.Sprintf("%s is a domain or an alias already", name))
		}
	}
	if d.GetIsDefault() && c.DefaultDomain() != nil {
		return nil, Refuse(CodeInvalidRequest, "is_default", fmt.Sprintf("%s is the default domain already", c.DefaultDomain().GetNamespace()))
	}
	if d.GetNotFoundUrl() != "" {
		return nil, Refuse(CodeInvalidRequest, FieldNotFoundURL, "not_found_url is set once the domain is there")
	}
	return &pb.Event{Kind: &pb.Event_DomainAdded{DomainAdded: &pb.DomainAdded{Domain: d}}}, nil
}

// decideDomainUpdate decides on other settings of a domain.
func decideDomainUpdate(c *Control, u *pb.UpdateDomain, nowUS int64) (*pb.Event, *Refusal) {
	old := c.Domains()[u.GetNamespace()]
	if old == nil {
		return nil, Refuse(CodeNotFound, "", "there is no such domain")
	}
	if err := checkVersion("domain", c.DomainSeq(u.GetNamespace()), u.GetIfSeq(), u.GetOrSeqs()); err != nil {
		return nil, err
	}
	for _, name := range u.GetFields() {
		if name != FieldNotFoundURL {
			return nil, Refuse(CodeInvalidRequest, "", fmt.Sprintf("%.40q is not a setting that an update can change", name))
		}
	}
	if !slices.Contains(u.GetFields(), FieldNotFoundURL) || u.GetNotFoundUrl() == old.GetNotFoundUrl() {
		return nil, nil
	}
	if err := checkNotFoundURL(c, u.GetNotFoundUrl(), nowUS); err != nil {
		return nil, err
	}
	next := proto.CloneOf(old)
	next.NotFoundUrl = u.GetNotFoundUrl()
	return &pb.Event{Kind: &pb.Event_DomainUpdated{DomainUpdated: &pb.DomainUpdated{Domain: next, Changed: []string{FieldNotFoundURL}}}}, nil
}

// checkNotFoundURL judges a not_found_url by the rules of a link's target; "" takes it away.
func checkNotFoundURL(c *Control, raw string, nowUS int64) *Refusal {
	if raw == "" {
		return nil
	}
	if normal, err := NormalizeURL(FieldNotFoundURL, raw); err != nil {
		return asRefusal(err, CodeInvalidTarget, FieldNotFoundURL)
	} else if normal != raw {
		return Refuse(CodeInvalidTarget, FieldNotFoundURL, "not_found_url is not in its normal form")
	}
	own, list := judgeURL(c, raw, nowUS)
	if own {
		return Refuse(CodeInvalidTarget, FieldNotFoundURL, "not_found_url is on one of our own short domains, which would be a loop")
	}
	if list != "" {
		return Refuse(CodeTargetBlocked, FieldNotFoundURL, "the host of not_found_url is on a list: "+list)
	}
	return nil
}
