package app

import (
	"context"
	"fmt"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/readmodels/control"
	"github.com/hoplog/hoplog/readmodels/deny"
)

// startGate follows the pulse and makes what turns visitors away.
func (n *node) startGate() (*deny.Gate, error) {
	bound := n.GetDuration(setDenyStale)
	if bound <= 0 {
		return nil, usagef("%s: want more than 0", setDenyStale)
	}
	n.parts.pulse = control.NewPulse(n.source, n.control, n.logger, time.Now)
	n.work("pulse reader", func(ctx context.Context) error { n.parts.pulse.Run(ctx); return nil })
	n.parts.gate = deny.NewGate(n.control.Current, n.parts.pulse.Age, bound)
	return n.parts.gate, nil
}

// listsAge returns how old the node's lists can be at most; false before the first pulse, and where there is no node.
func (n *node) listsAge() (age time.Duration, known bool) {
	if n.parts.pulse == nil {
		return 0, false
	}
	age = n.parts.pulse.Age()
	return age, age < aboutForEver
}

// listsHealth says whether the node may serve links of low trust. That it cannot know before the first pulses are there is no
// trouble.
func (n *node) listsHealth() roleHealth {
	bound := n.GetDuration(setDenyStale)
	age, known := n.listsAge()
	if known && age <= bound || time.Since(n.began) < max(bound, startsWithin) {
		return ready
	}
	if !known {
		return degraded("no pulse of the control log was seen since the start: links of low trust answer 503")
	}
	return degraded(fmt.Sprintf("the lists may be %s old: links of low trust answer 503", age.Round(time.Second)))
}

const (
	// startsWithin is how long a node may be without its first pulse and say nothing of it.
	startsWithin = 10 * time.Second
	// aboutForEver is an age that is none: no pulse was seen.
	aboutForEver = 1000 * 24 * time.Hour
)

// startControlSubmitter makes what sends writes to the control plane.
func (n *node) startControlSubmitter() (*gateway.ControlSubmitter, error) {
	session, err := n.log.NewAppender(eventlog.CommandsControl)
	if err != nil {
		return nil, fmt.Errorf("opening producer session: %w", err)
	}
	n.onStop("control command session", func(ctx context.Context) error {
		defer session.Close()
		return session.Flush(ctx)
	})
	submitter := gateway.NewControlSubmitter(session)
	n.control.Watch(submitter.Committed)
	return submitter, nil
}
