package eventloop

import "time"

// wheel holds connections by when to look at them next. A deadline that moves away costs nothing: the connection is found
// too early and put where it belongs. One that comes nearer moves it at once. Deadlines strike up to a tick too late, never
// early.
type wheel struct {
	tick  time.Duration
	next  time.Duration // end of the tick under way
	slots [wheelSlots]*conn
	at    int // slot of the tick under way
}

const (
	wheelSlots  = 256
	longestTick = time.Second
	tickPart    = 8 // of the shortest timeout
)

func (w *wheel) init(shortest time.Duration) {
	w.tick = max(min(shortest/tickPart, longestTick), time.Millisecond)
	w.next = w.tick
}

// set gives a connection a deadline.
func (w *wheel) set(c *conn, deadline time.Duration) {
	c.deadline = deadline
	if c.slot < 0 || deadline < c.looked {
		w.remove(c)
		w.add(c)
	}
}

// add puts a connection into the slot of its deadline, or into the farthest.
func (w *wheel) add(c *conn) {
	ticks := 1
	if c.deadline > w.next {
		ticks = min(int((c.deadline-w.next)/w.tick)+2, wheelSlots-1)
	}
	c.looked = w.next + time.Duration(ticks-1)*w.tick
	c.slot = int16((w.at + ticks) % wheelSlots)
	first := &w.slots[c.slot]
	c.earlier, c.later = nil, *first
	if *first != nil {
		(*first).earlier = c
	}
	*first = c
}

func (w *wheel) remove(c *conn) {
	if c.slot < 0 {
		return
	}
	if c.earlier != nil {
		c.earlier.later = c.later
	} else {
		w.slots[c.slot] = c.later
	}
	if c.later != nil {
		c.later.earlier = c.earlier
	}
	c.slot, c.earlier, c.later = -1, nil, nil
}

// advance moves on to now. What is past its deadline is expired, which must give it a new one or remove it.
func (w *wheel) advance(now time.Duration, expire func(*conn)) {
	if behind := now - w.next; behind > wheelSlots*w.tick {
		w.next = now - wheelSlots*w.tick // nothing was here to be struck, or all of it is due
	}
	for w.next <= now {
		w.at = (w.at + 1) % wheelSlots
		w.next += w.tick
		c := w.slots[w.at]
		for c != nil {
			later := c.later
			w.remove(c)
			if c.deadline <= now {
				expire(c)
			} else {
				w.add(c)
			}
			c = later
		}
	}
}
