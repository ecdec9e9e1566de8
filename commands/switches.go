package commands

import (
	"fmt"

	"github.com/hoplog/hoplog/schemas/pb"
)

// SwitchWindow is the time within which the second confirmation of a switch must follow the first; microseconds of stamped
// time.
const SwitchWindow = 10 * 60 * 1_000_000

// Switch is the emergency switch of one tier. Closing it takes two confirmations by two keys, as one key that is lost or in
// error must not put links out of service. Opening takes two too: one key must not undo, in the middle of an incident, what two
// people decided; and who closed it can be found.
type Switch struct {
	Closed bool
	// ChangedUS is when it was last turned, microseconds; 0: never.
	ChangedUS int64
	// Actors are who turned it last: the first confirmation's and the second's.
	Actors [2]string
	// Note is that of the second confirmation, else of the first.
	Note string
	// Pending is a first confirmation that waits for the second; nil if none does. It counts for SwitchWindow.
	Pending *Confirmation
}

// Confirmation is the first of the two that turn a switch.
type Confirmation struct {
	Closed bool
	Actor  string
	TimeUS int64
	Note   string
}

// Counts reports whether a second confirmation may still follow at a time in microseconds.
func (p *Confirmation) Counts(nowUS int64) bool { return p != nil && nowUS-p.TimeUS < SwitchWindow }

func decideSwitch(c *Control, change *pb.ChangeSwitch, actor string, nowUS int64) (*pb.Event, *Refusal) {
	if TierName(change.GetTier()) == "" {
		return nil, Refuse(CodeInvalidRequest, "tier", "a tier is one of low, standard and high")
	}
	if err := checkText("note", change.GetNote(), MaxReason); err != nil {
		return nil, err
	}
	if actor == "" {
		return nil, Refuse(CodeInvalidRequest, "", "a switch is turned by somebody")
	}
	now := c.Switch(change.GetTier())
	pending := now.Pending.Counts(nowUS)
	step := pb.SwitchStep_SWITCH_PROPOSED
	switch {
	case now.Closed == change.GetClosed() && !pending:
		return nil, nil
	case now.Closed == change.GetClosed():
		step = pb.SwitchStep_SWITCH_WITHDRAWN
	case pending && now.Pending.Actor == actor:
		return nil, nil
	case pending:
		step = pb.SwitchStep_SWITCH_TURNED
	}
	return &pb.Event{Kind: &pb.Event_SwitchChanged{SwitchChanged: &pb.SwitchChanged{
		Tier: change.GetTier(), Closed: change.GetClosed(), Step: step, Note: change.GetNote()}}}, nil
}

// evolveSwitch folds a change into the tier's switch.
func evolveSwitch(s Switch, change *pb.SwitchChanged, actor string, timeUS int64) Switch {
	switch change.GetStep() {
	case pb.SwitchStep_SWITCH_PROPOSED:
		s.Pending = &Confirmation{Closed: change.GetClosed(), Actor: actor, TimeUS: timeUS, Note: change.GetNote()}
	case pb.SwitchStep_SWITCH_TURNED:
		next := Switch{Closed: change.GetClosed(), ChangedUS: timeUS, Actors: [2]string{"", actor}, Note: change.GetNote()}
		if s.Pending != nil {
			next.Actors[0] = s.Pending.Actor
			if next.Note == "" {
				next.Note = s.Pending.Note
			}
		}
		return next
	case pb.SwitchStep_SWITCH_WITHDRAWN:
		s.Pending = nil
	}
	return s
}

// switched returns lists with the tier closed or open.
func (l *Lists) switched(change *pb.SwitchChanged) *Lists {
	if change.GetStep() != pb.SwitchStep_SWITCH_TURNED || TierName(change.GetTier()) == "" {
		return l
	}
	next := &Lists{}
	if l != nil {
		*next = *l
	}
	next.closed[change.GetTier()] = change.GetClosed()
	return next
}

// Switch returns the switch of a tier.
func (c *Control) Switch(tier pb.TrustTier) Switch {
	if c == nil || TierName(tier) == "" {
		return Switch{}
	}
	return c.switches[tier]
}

// SwitchAnswer says in words how a switch stands after a confirmation, and what is missing.
func SwitchAnswer(s Switch, nowUS int64) string {
	state := map[bool]string{true: "closed", false: "open"}
	if s.Pending.Counts(nowUS) {
		return fmt.Sprintf("%s; to be %s once another admin key confirms it within %d minutes", state[s.Closed], state[s.Pending.Closed], SwitchWindow/60_000_000)
	}
	return state[s.Closed]
}
