package gateway

import "github.com/hoplog/hoplog/commands"

// Complete returns why a link, domain or key that this process does not know may exist all the same: its read models stopped
// at damage, or have not read the log to its end yet. Nil: what is not there does not exist. It is asked only when something
// is missing, so that a known link never waits for it.
type Complete func() error

// reason is nil for a process that is always complete.
func (c Complete) reason() error {
	if c == nil {
		return nil
	}
	return c()
}

// missing is the answer to a request for what this server does not know: the refusal, or that it cannot tell.
func (a *api) missing(refusal *commands.Refusal) error {
	if why := a.Complete.reason(); why != nil {
		return commands.Refuse(commands.CodeUnavailable, refusal.Field, "this server cannot tell: "+why.Error())
	}
	return refusal
}
