//go:build synctests

package simulation

import (
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/events/eventlog/virtualkafka"
)

// chaos is what befalls the world until a time.
type chaos struct {
	w     *world
	rng   *rand.Rand
	until time.Time
	back  sync.WaitGroup // of processes that are down and will start again
}

// faults, each with how often it is drawn.
var faults = []struct {
	weight int
	befall func(*chaos)
}{
	{14, (*chaos).appendsGoWrong},
	{14, (*chaos).freezeWriter},
	{8, (*chaos).twoOwners},
	{6, (*chaos).freeze},
	{6, (*chaos).cut},
	{8, (*chaos).kill},
	{3, (*chaos).restart},
	{2, (*chaos).broker},
	{2, (*chaos).outage},
	{6, (*chaos).slowReader},
	{5, (*chaos).controlLags},
	{6, (*chaos).clock},
	{2, (*chaos).daysPass},
}

// run befalls the world with one fault after the other, then ends them all.
func (c *chaos) run() {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	for c.w.ctx.Err() == nil && time.Now().Before(c.until) {
		time.Sleep(c.upTo(500 * time.Millisecond))
		draw := c.rng.IntN(total)
		for _, f := range faults {
			if draw -= f.weight; draw < 0 {
				f.befall(c)
				break
			}
		}
	}
	c.heal()
}

// heal ends all faults: every process runs, every clock is right, and the network is well.
func (c *chaos) heal() {
	c.back.Wait()
	for _, p := range c.w.processes() {
		p.skew.Store(0)
		if l := p.current(); l != nil {
			l.net.Heal()
		}
	}
	c.w.trace.note("healed")
}

func (c *chaos) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

func (c *chaos) coin() bool { return c.rng.IntN(2) == 0 }

func (c *chaos) any(of []*process) *process { return of[c.rng.IntN(len(of))] }

// appendsGoWrong: the next appends are lost, late, or acknowledged late or not at all.
func (c *chaos) appendsGoWrong() {
	p, topic := c.any(c.w.writers), eventlog.EventsLink
	switch c.rng.IntN(5) {
	case 0:
		topic = eventlog.EventsControl
	case 1, 2:
		p, topic = c.any(c.w.apis), eventlog.CommandsLink
	}
	l := p.current()
	if l == nil {
		return
	}
	for range 1 + c.rng.IntN(3) {
		var f virtualkafka.Fate
		switch c.rng.IntN(5) {
		case 0:
			f.Lose = true
		case 1:
			f.LoseAnswer = true
		case 2:
			f.Delay = c.upTo(8 * time.Second)
		case 3:
			f.DelayAnswer = c.upTo(8 * time.Second)
		case 4:
			f.Delay, f.LoseAnswer = c.upTo(3*time.Second), true
		}
		c.w.trace.note("%s: the next append to %s: %+v", p.name, topic, f)
		l.net.Befall(topic, f)
	}
}

// freezeWriter holds all that a writer says and hears; often long enough that its partitions are given away.
func (c *chaos) freezeWriter() { c.hold(c.any(c.w.writers), virtualkafka.Traffic{}, 5*time.Second) }

// twoOwners holds a writer's heartbeats alone: the group gives its partitions away while it goes on writing. Its appends
// may be held a while too, so that they land when the other writes.
func (c *chaos) twoOwners() {
	p := c.any(c.w.writers)
	c.hold(p, virtualkafka.Traffic{Kinds: []virtualkafka.Kind{virtualkafka.Group}}, 6*time.Second)
	if c.coin() {
		c.hold(p, virtualkafka.Traffic{Kinds: []virtualkafka.Kind{virtualkafka.Produce}, Topic: eventlog.EventsLink}, 4*time.Second)
	}
}

// freeze holds all that an API or the node says and hears.
func (c *chaos) freeze() {
	c.hold(c.any(append(c.w.apis, c.w.node)), virtualkafka.Traffic{}, 3*time.Second)
}

func (c *chaos) hold(p *process, t virtualkafka.Traffic, most time.Duration) {
	if l := p.current(); l != nil {
		d := c.upTo(most)
		c.w.trace.note("%s: %+v held for %v", p.name, t, d)
		l.net.Hold(t, d)
	}
}

func (c *chaos) cut() {
	p := c.any(c.w.processes())
	if l := p.current(); l != nil {
		d, arrive := c.upTo(2*time.Second), c.coin()
		c.w.trace.note("%s: cut off for %v, requests arrive: %v", p.name, d, arrive)
		l.net.Down(d, arrive)
	}
}

// kill crashes a process and its disk; it comes back on what the disk kept.
func (c *chaos) kill() {
	p := c.any(c.w.processes())
	if p.current() == nil {
		return
	}
	unsynced := []int{0, 0, 50, 100}[c.rng.IntN(4)]
	p.kill(c.coin(), unsynced)
	c.start(p, c.upTo(2*time.Second))
}

func (c *chaos) restart() {
	p := c.any(c.w.processes())
	if p.current() == nil {
		return
	}
	c.w.trace.note("%s: told to stop", p.name)
	pause := c.upTo(time.Second)
	c.back.Go(func() {
		p.stop()
		time.Sleep(pause)
		p.start()
	})
}

func (c *chaos) start(p *process, after time.Duration) {
	c.back.Go(func() {
		time.Sleep(after)
		p.start()
	})
}

// broker stops or crashes the broker, which comes back on its data.
func (c *chaos) broker() {
	crash, away := c.coin(), c.upTo(3*time.Second)
	synctest.Wait()
	c.w.trace.note("broker: away for %v, crashed: %v", away, crash)
	if err := c.w.broker.Stop(crash); err != nil {
		c.w.fail("stopping the broker: %v", err)
		return
	}
	time.Sleep(away)
	if err := c.w.broker.Start(); err != nil {
		c.w.fail("starting the broker: %v", err)
	}
	c.w.trace.note("broker: back")
}

// outage cuts everybody off.
func (c *chaos) outage() {
	d, arrive := c.upTo(3*time.Second), c.coin()
	c.w.trace.note("network: away for %v", d)
	for _, p := range c.w.processes() {
		if l := p.current(); l != nil {
			l.net.Down(d, arrive)
		}
	}
}

func (c *chaos) slowReader() {
	p := c.any(c.w.processes())
	if l := p.current(); l != nil {
		by, d := c.upTo(time.Second), c.upTo(5*time.Second)
		c.w.trace.note("%s: reads %v late for %v", p.name, by, d)
		l.net.Slow(virtualkafka.Traffic{Kinds: []virtualkafka.Kind{virtualkafka.Fetch}}, by, d)
	}
}

// controlLags: a process does not hear of the control log for a while.
func (c *chaos) controlLags() {
	c.hold(c.any(append(c.w.writers, c.w.apis...)), virtualkafka.Traffic{Kinds: []virtualkafka.Kind{virtualkafka.Fetch}, Topic: eventlog.EventsControl}, 5*time.Second)
}

// clock makes a writer's or an API's clock wrong, within what is allowed or beyond.
func (c *chaos) clock() {
	p := c.any(append(c.w.writers, c.w.apis...))
	skew := []time.Duration{0, c.upTo(55 * time.Second), -c.upTo(55 * time.Second), c.upTo(20 * time.Hour), 90 * time.Second, -90 * time.Second,
		25 * time.Hour, -25 * time.Hour}[c.rng.IntN(8)]
	c.w.trace.note("%s: clock wrong by %v", p.name, skew)
	p.skew.Store(int64(skew))
}

// daysPass: hours or days go by at once, for all clocks.
func (c *chaos) daysPass() {
	passed := []time.Duration{time.Hour, 20 * time.Hour, 3 * 24 * time.Hour}[c.rng.IntN(3)]
	c.w.trace.note("%v pass", passed)
	c.w.ahead.Add(int64(passed))
}
