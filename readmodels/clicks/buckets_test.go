package clicks

import (
	"errors"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestSevenDaysAreSevenBuckets(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Auckland", "America/New_York"} {
		z := zone(t, name)
		from, err1 := ParseTime("2026-03-26", z, false)
		to, err2 := ParseTime("2026-04-01", z, true) // with the change to summer time in Berlin
		starts, err3 := buckets(from.In(z), to, Day)
		if err := errors.Join(err1, err2, err3); err != nil || len(starts) != 7 {
			t.Fatalf("%s: %d buckets, %v", name, len(starts), err)
		}
		if last := starts[6]; last.Day() != 1 || last.Hour() != 0 || starts[0].Day() != 26 {
			t.Errorf("%s: %v", name, starts)
		}
	}
}

func TestBucketsAcrossChangesOfTheClock(t *testing.T) {
	for _, given := range []struct {
		zone, from, to string
		interval       Interval
		want           []string
	}{
		{"Europe/Berlin", "2026-03-29T00:30:00+01:00", "2026-03-29T04:00:00+02:00", Hour, []string{"00:00+01:00", "01:00+01:00", "03:00+02:00"}},
		{"Europe/Berlin", "2026-10-25T01:00:00+02:00", "2026-10-25T04:00:00+01:00", Hour, []string{"01:00+02:00", "02:00+02:00", "02:00+01:00", "03:00+01:00"}},
		{"Australia/Lord_Howe", "2026-04-05T01:00:00+11:00", "2026-04-05T03:00:00+10:30", Hour, []string{"01:00+11:00", "01:30+10:30", "02:00+10:30"}},
		{"Asia/Beirut", "2026-03-28", "2026-03-30", Day, []string{"00:00+02:00", "01:00+03:00", "00:00+03:00"}},
		{"America/Havana", "2026-10-31", "2026-11-02", Day, []string{"00:00-04:00", "00:00-04:00", "00:00-05:00"}},
		{"America/Sao_Paulo", "2019-02-15", "2019-02-18", Day, []string{"00:00-02:00", "00:00-02:00", "00:00-03:00", "00:00-03:00"}},
		{"Pacific/Apia", "2011-12-29", "2012-01-01", Day, []string{"00:00-10:00", "00:00+14:00", "00:00+14:00"}},
		{"Europe/Berlin", "2026-03-20", "2026-04-02", Week, []string{"00:00+01:00", "00:00+01:00", "00:00+02:00"}},
		{"Europe/Berlin", "2026-01-31", "2026-04-01", Month, []string{"00:00+01:00", "00:00+01:00", "00:00+01:00", "00:00+02:00"}},
	} {
		z := zone(t, given.zone)
		from, err1 := ParseTime(given.from, z, false)
		to, err2 := ParseTime(given.to, z, true)
		starts, err3 := buckets(from.In(z), to, given.interval)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range starts {
			got = append(got, s.Format("15:04Z07:00"))
		}
		if len(got) != len(given.want) {
			t.Errorf("%s %s: %v", given.zone, given.from, starts)
			continue
		}
		for i := range got {
			if got[i] != given.want[i] {
				t.Errorf("%s %s: bucket %d begins %s, want %s", given.zone, given.from, i, got[i], given.want[i])
			}
		}
	}
}

// Buckets follow each other without holes or overlaps, hold their range, and begin where their interval says.
func TestBucketsCoverTheRange(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana",
		"Asia/Beirut", "Africa/Cairo", "America/Sao_Paulo", "Asia/Tehran", "Pacific/Chatham", "Antarctica/Troll", "America/St_Johns", "Africa/Monrovia", "Asia/Gaza"}
	rapid.Check(t, func(r *rapid.T) {
		z := zone(t, rapid.SampledFrom(zones).Draw(r, "zone"))
		interval := rapid.SampledFrom([]Interval{Minute, Hour, Day, Week, Month}).Draw(r, "interval")
		from := time.UnixMicro(rapid.Int64Range(0, 2_000_000_000_000_000).Draw(r, "from")).In(z)
		length := rapid.Int64Range(1, 1000*map[Interval]int64{Minute: 60, Hour: 3600, Day: 86400, Week: 604800, Month: 2592000}[interval]).Draw(r, "seconds")
		to := from.Add(time.Duration(min(length, 3_000_000_000)) * time.Second)
		starts, err := buckets(from, to, interval)
		if err != nil {
			r.Fatal(err)
		}
		if starts[0].After(from) || !bucketNext(starts[0], interval).After(from) || !starts[len(starts)-1].Before(to) || bucketNext(starts[len(starts)-1], interval).Before(to) {
			r.Fatalf("%v to %v: %v … %v", from, to, starts[0], starts[len(starts)-1])
		}
		for i, s := range starts {
			if i > 0 && !s.After(starts[i-1]) {
				r.Fatalf("%v follows %v", s, starts[i-1])
			}
			if !bucketStart(s, interval).Equal(s) {
				r.Fatalf("%v is in the bucket of %v", s, bucketStart(s, interval))
			}
			if i > 0 && interval == Day && s.Add(-time.Nanosecond).Day() == s.Day() {
				r.Fatalf("the day of %v began earlier", s)
			}
		}
	})
}

func TestQueriesThatCannotBeAnswered(t *testing.T) {
	for field, q := range map[string]Query{
		"from":     {From: noon, To: noon, Interval: Day},
		"interval": {From: noon, To: noon.AddDate(0, 1, 0), Interval: Minute},
		"by":       {From: noon, To: noon.Add(time.Hour), Interval: Hour, By: []string{"ip"}},
	} {
		_, err := q.check()
		var bad *QueryError
		if !errors.As(err, &bad) || bad.Field != field || !errors.Is(err, ErrBadQuery) {
			t.Errorf("%s: %v", field, err)
		}
	}
	q := Query{From: noon, To: noon.Add(time.Hour), Interval: "year"}
	if _, err := q.check(); err == nil {
		t.Error("interval year accepted")
	}
	for _, s := range []string{"", "now", "2026-02-30", "2026-13-01", "2026-01-01T00:00:00"} {
		if got, err := ParseTime(s, time.UTC, false); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}

func TestDefaultFrom(t *testing.T) {
	z := zone(t, "Europe/Berlin")
	for interval, want := range map[Interval]int{Minute: 60, Hour: 48, Day: 30, Week: 26, Month: 12} {
		for _, to := range []time.Time{noon, time.Date(2026, 10, 5, 0, 0, 0, 0, z)} {
			starts, err := buckets(DefaultFrom(to, interval, z).In(z), to, interval)
			if err != nil || len(starts) != want {
				t.Errorf("%s up to %v: %d buckets, %v", interval, to, len(starts), err)
			}
		}
	}
}
