package projections

import (
	"github.com/hoplog/hoplog/commands"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/schemas/pb"
)

// checkContent judges an accepted envelope's events and outcome, and remembers what the events did.
func (v *Verifier) checkContent(offset int64, e *events.Envelope) {
	if fault := refusedWithEvents(e); fault != "" {
		v.problem(ProblemOutcome, offset, e, "%s", fault)
	}
	if v.stream == events.StreamControl {
		for _, event := range e.GetEvents() {
			v.checkControlEvent(offset, e, event)
		}
		return
	}
	for _, event := range e.GetEvents() {
		v.checkLinkEvent(offset, e, event)
	}
	v.checkOutcome(offset, e)
}

// refusedWithEvents judges what holds for outcomes of both streams.
func refusedWithEvents(e *events.Envelope) string {
	o, failed := e.GetOutcome(), e.GetStamp().GetFailed()
	switch {
	case len(e.GetEvents()) > 0 && o.GetError() != "":
		return "it refuses its command and has events"
	case len(e.GetEvents()) > 0 && (o.GetReplayed() || o.GetExisting()):
		return "it answers with what was there already and has events"
	case failed != "" && !o.GetReplayed() && o.GetError() != failed && o.GetError() != commands.CodeIdempotencyKeyReused:
		return "its stamp failed with " + failed + ", its outcome does not say so"
	}
	return ""
}

// checkLinkEvent judges one event of a link against those before it.
func (v *Verifier) checkLinkEvent(offset int64, e *events.Envelope, event *pb.Event) {
	ref := events.LinkOf(event)
	if ref == nil {
		v.problem(ProblemEvent, offset, e, "an event %s in the links' stream", events.EventType(event))
		return
	}
	if home := events.BucketOf(ref.GetNamespace(), ref.GetCode()); home != e.GetBucket() {
		v.problem(ProblemEvent, offset, e, "the link %s/%s belongs to bucket %d", ref.GetNamespace(), ref.GetCode(), home)
	}
	key := linkKey(ref)
	link, known := v.links[key]
	v.checkVersion(offset, e, event, link, known)
	if !known {
		link.id = ref.GetLinkId()
		v.all.ids = append(v.all.ids, link.id)
	}
	link.version = events.VersionOf(event)
	link.deleted = link.deleted || event.GetLinkStatusChanged().GetAction() == pb.StatusAction_DELETE
	v.links[key] = link
}

func (v *Verifier) checkVersion(offset int64, e *events.Envelope, event *pb.Event, link verifiedLink, known bool) {
	ref, version, stamp := events.LinkOf(event), events.VersionOf(event), e.GetStamp()
	name := ref.GetNamespace() + "/" + ref.GetCode()
	created := event.GetLinkCreated() != nil
	switch {
	case known && created:
		v.problem(ProblemVersion, offset, e, "the link %s is created again, at version %d", name, link.version)
	case link.deleted:
		v.problem(ProblemVersion, offset, e, "the link %s is changed after it was deleted", name)
	case !known && !created:
		v.problem(ProblemVersion, offset, e, "the link %s is changed to version %d and was never created", name, version)
	case version != link.version+1:
		v.problem(ProblemVersion, offset, e, "version %d of the link %s follows version %d", version, name, link.version)
	case known && ref.GetLinkId() != link.id:
		v.problem(ProblemID, offset, e, "the link %s has the id %d, it had %d", name, ref.GetLinkId(), link.id)
	case created && (ref.GetLinkId() != stamp.GetCandidateId() || stamp.GetCandidateCode() != "" && stamp.GetCandidateCode() != ref.GetCode()):
		v.problem(ProblemOutcome, offset, e, "the link %s was not created with the id and code of its stamp", name)
	}
}

// checkOutcome judges whether the sender was told what happened.
func (v *Verifier) checkOutcome(offset int64, e *events.Envelope) {
	o := e.GetOutcome()
	if o.GetError() != "" {
		return
	}
	for _, event := range e.GetEvents() {
		if ref := events.LinkOf(event); ref != nil && (ref.GetNamespace() != o.GetNamespace() || ref.GetCode() != o.GetCode()) {
			v.problem(ProblemOutcome, offset, e, "its outcome is about %s/%s, its event about %s/%s", o.GetNamespace(), o.GetCode(), ref.GetNamespace(), ref.GetCode())
			return
		}
	}
	link, known := v.links[events.RouteKey(o.GetNamespace(), o.GetCode())]
	switch {
	case !known:
		v.problem(ProblemOutcome, offset, e, "its outcome is about the link %s/%s, which was never created in this partition", o.GetNamespace(), o.GetCode())
	case o.GetVersion() > link.version || o.GetVersion() < link.version && !o.GetReplayed():
		v.problem(ProblemOutcome, offset, e, "its outcome says that %s/%s is at version %d, its events lead to %d", o.GetNamespace(), o.GetCode(), o.GetVersion(), link.version)
	}
}

// checkControlEvent judges what identities rest on: leases do not overlap, and permutation keys are never replaced.
func (v *Verifier) checkControlEvent(offset int64, e *events.Envelope, event *pb.Event) {
	if events.LinkOf(event) != nil {
		v.problem(ProblemEvent, offset, e, "an event %s in the control stream", events.EventType(event))
	}
	if s := event.GetSegmentLeased().GetSegment(); s != nil {
		if free := max(v.leased[s.GetSpace()], 1); s.GetFrom() < free || s.GetTo() <= s.GetFrom() {
			v.problem(ProblemID, offset, e, "the ids [%d, %d) of space %d are leased, the first free one is %d", s.GetFrom(), s.GetTo(), s.GetSpace(), free)
		}
		v.leased[s.GetSpace()] = max(v.leased[s.GetSpace()], s.GetTo())
	}
	if k := event.GetPermutationKeyAdded().GetKey(); k != nil {
		if k.GetVersion() != v.codeKeys+1 {
			v.problem(ProblemID, offset, e, "version %d of the permutation key follows version %d", k.GetVersion(), v.codeKeys)
		}
		v.codeKeys = k.GetVersion()
	}
}
