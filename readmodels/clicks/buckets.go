package clicks

import (
	"fmt"
	"time"
)

// buckets returns the starts of all buckets that [from, to) touches, in from's zone.
func buckets(from, to time.Time, interval Interval) ([]time.Time, error) {
	switch interval {
	case Minute, Hour, Day, Week, Month:
	default:
		return nil, &QueryError{"interval", fmt.Sprintf("%.20q is not one of minute, hour, day, week, month", interval)}
	}
	var out []time.Time
	for start := bucketStart(from, interval); start.Before(to); start = bucketNext(start, interval) {
		if len(out) == MaxBuckets {
			return nil, &QueryError{"interval", fmt.Sprintf("the range has more than %d buckets; take a longer interval or a shorter range", MaxBuckets)}
		}
		out = append(out, start)
	}
	return out, nil
}

// bucketStart returns the start of the bucket that holds t.
func bucketStart(t time.Time, interval Interval) time.Time {
	switch interval {
	case Minute:
		return clockStart(t, time.Minute)
	case Hour:
		return clockStart(t, time.Hour)
	case Week:
		return startOfDay(t.Year(), t.Month(), t.Day()-weekday(t), t.Location())
	case Month:
		return startOfDay(t.Year(), t.Month(), 1, t.Location())
	default:
		return startOfDay(t.Year(), t.Month(), t.Day(), t.Location())
	}
}

// bucketNext returns the start of the bucket after the one that begins at t.
func bucketNext(t time.Time, interval Interval) time.Time {
	switch interval {
	case Minute:
		return clockNext(t, time.Minute)
	case Hour:
		return clockNext(t, time.Hour)
	case Week:
		return startOfDay(t.Year(), t.Month(), t.Day()+7, t.Location())
	case Month:
		return startOfDay(t.Year(), t.Month()+1, 1, t.Location())
	default:
		return startOfDay(t.Year(), t.Month(), t.Day()+1, t.Location())
	}
}

// weekday counts from Monday, 0.
func weekday(t time.Time) int { return (int(t.Weekday()) + 6) % 7 }

// clockStart rounds the wall clock down to a whole minute or hour, but not across a change of the clock: the time from the
// change to the next whole one is a bucket of its own.
func clockStart(t time.Time, unit time.Duration) time.Time {
	start := t.Add(-sinceWhole(t, unit))
	if changed, _ := t.ZoneBounds(); !changed.IsZero() && start.Before(changed) {
		return changed.In(t.Location())
	}
	return start
}

func clockNext(t time.Time, unit time.Duration) time.Time {
	next := t.Add(unit - sinceWhole(t, unit))
	if _, change := t.ZoneBounds(); !change.IsZero() && change.Before(next) {
		return change.In(t.Location())
	}
	return next
}

// sinceWhole is how long ago the wall clock showed a whole unit.
func sinceWhole(t time.Time, unit time.Duration) time.Duration {
	_, offset := t.Zone()
	wall := time.Duration(t.Unix()+int64(offset))*time.Second%unit + time.Duration(t.Nanosecond())
	if wall < 0 {
		wall += unit
	}
	return wall
}

// startOfDay returns the first instant of a day, given as for time.Date. Some days do not begin at 00:00, because the clock
// jumps over it; some have two.
func startOfDay(year int, month time.Month, day int, zone *time.Location) time.Time {
	want := time.Date(year, month, day, 0, 0, 0, 0, time.UTC) // the date, normalised
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	if before := want.Sub(wallClock(t)); before > 0 && before <= 24*time.Hour {
		// Midnight is skipped (once, a whole day was), and time.Date took the offset from after the jump.
		t = t.Add(before)
	}
	changed, _ := t.ZoneBounds()
	if changed.IsZero() {
		return t
	}
	// The same wall clock before the last change of the clock, if there is one: then midnight comes twice.
	_, now := t.Zone()
	_, then := changed.Add(-time.Nanosecond).Zone()
	if earlier := t.Add(time.Duration(now-then) * time.Second); earlier.Before(changed) && wallClock(earlier).Equal(want) {
		return earlier
	}
	return t
}

// wallClock is what the clock shows at t, as a time of UTC.
func wallClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}
