package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/events/eventlog"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/projections"
	"github.com/hoplog/hoplog/readmodels"
	"github.com/hoplog/hoplog/schemas/pb"
)

// Names of replay's settings.
const (
	setAsOf    = "as-of"
	setRebuild = "rebuild"
)

func replayFlags(f *pflag.FlagSet) {
	f.String(setAsOf, "", "moment to show: an RFC 3339 time or a position stream/bucket/seq")
	f.String(setRebuild, "", "read model of the running process to build again: redirects")
}

func newReplay() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay (--as-of TIME|POSITION [LINK] | --rebuild redirects)",
		Short: "Show the state at a moment, from the log alone, or rebuild a read model",
		Long: "With --as-of, show a link as it was at a moment, or all links: how many of each status, with --json the links, one a line. It is\n" +
			"folded from the log alone. A time is RFC 3339 (2026-01-02T15:04:05Z); a position, as writes return it, is that of one bucket\n" +
			"(link/1731/42) and shows the links of that bucket. LINK is DOMAIN/CODE, CODE on the default domain, or a short URL.\n\n" +
			"With --rebuild redirects, the process at --admin builds its redirects again from the log beside the live ones, compares the two by\n" +
			"a hash per bucket, and switches.",
		Args: maxArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := load(c)
			if err != nil {
				return err
			}
			switch asOf, model := s.GetString(setAsOf), s.GetString(setRebuild); {
			case (asOf == "") == (model == ""):
				return usagef("want one of --as-of TIME|POSITION and --rebuild redirects")
			case model == "":
				m, err := parseMoment(asOf)
				if err != nil {
					return err
				}
				return withReader(c, args, func(ctx context.Context, r *reading) error { return replayAsOf(ctx, r, m) })
			case model != "redirects":
				return usagef("--rebuild %q: the read model that can be rebuilt is redirects", model)
			case len(args) > 0:
				return usagef("--rebuild redirects rebuilds all links, not one")
			}
			return rebuild(c, s)
		},
	}
	return withFlags(c, replayFlags, kafkaFlags, adminFlags, jsonFlag)
}

// moment is a stamped time, or a place in one bucket's chain.
type moment struct {
	time     time.Time
	position *events.Position
}

func (m moment) String() string {
	if m.position != nil {
		return m.position.String()
	}
	return m.time.UTC().Format(time.RFC3339Nano)
}

func parseMoment(text string) (moment, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return moment{time: at}, nil
	}
	p, err := events.ParsePosition(text)
	if err != nil {
		return moment{}, usagef("--as-of %.80q: want a time as 2026-01-02T15:04:05Z or a position as link/1731/42", text)
	}
	if p.Stream != events.StreamLink || p.Bucket >= events.Buckets {
		return moment{}, usagef("--as-of %s: there are no links in that bucket; want a position of a write to a link, as link/1731/42", p)
	}
	return moment{position: &p}, nil
}

// holds reports whether what has this stamped time and place in its bucket was in the log by then. Within a bucket neither
// times nor sequences run back.
func (m moment) holds(timeUS int64, seq uint64) bool {
	if m.position != nil {
		return seq <= m.position.Seq
	}
	return timeUS <= m.time.UnixMicro()
}

// see takes the time of the envelope at a moment's position for the moment's.
func (m *moment) see(e *events.Envelope) {
	if m.position != nil && e.GetBucket() == m.position.Bucket && e.GetSeq() == m.position.Seq {
		m.time = time.UnixMicro(e.GetStamp().GetTimeUs())
	}
}

// reached reports, once the log was read, whether it holds the moment's position.
func (m *moment) reached() error {
	if m.time.IsZero() {
		return fmt.Errorf("the log has no position %s yet", m)
	}
	return nil
}

func replayAsOf(ctx context.Context, r *reading, m moment) error {
	if r.link.code != "" {
		return replayLink(ctx, r, m)
	}
	return replayAll(ctx, r, m)
}

func replayLink(ctx context.Context, r *reading, m moment) error {
	if bucket := events.BucketOf(r.link.domain, r.link.code); m.position != nil && m.position.Bucket != bucket {
		return usagef("--as-of %s: the link %s lies in bucket %d, and a position says nothing of another bucket", m, r.link, bucket)
	}
	entries, err := r.linkHistory(ctx, m.see)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("the log has no link %s", r.link)
	}
	if err := m.reached(); err != nil {
		return err
	}
	var link *pb.Link
	for _, entry := range entries {
		if !m.holds(entry.GetTimeUs(), entry.GetSeq()) {
			break
		}
		link = projections.EvolveLink(link, entry)
	}
	if link == nil {
		created := moment{time: time.UnixMicro(entries[0].GetTimeUs())}
		return fmt.Errorf("the link %s did not exist at %s: it was created at %s, link/%d/%d", r.link, m, created, entries[0].GetBucket(), entries[0].GetSeq())
	}
	shown := gateway.ShowLink(link, m.time)
	if r.GetBool("json") {
		return printJSON(r.out, shown)
	}
	return printAs(r.out, shown, printLink)
}

// replayAll shows all links, or those of the moment's bucket. One partition after the other is in memory.
func replayAll(ctx context.Context, r *reading, m moment) error {
	ends, err := r.Ends(ctx, eventlog.EventsLink)
	if err != nil {
		return err
	}
	r.told.begin("reading the log", sum(ends))
	defer r.told.end()
	out := bufio.NewWriter(r.out)
	counts := map[string]int{}
	for p, end := range ends {
		if m.position != nil && events.PartitionOf(m.position.Bucket, r.partitions) != int32(p) {
			continue
		}
		links, err := r.linksAt(ctx, int32(p), end, &m)
		if err != nil {
			return err
		}
		for _, link := range links {
			counts[readmodels.StatusAt(link, m.time.UnixMicro())]++
		}
		if !r.GetBool("json") {
			continue
		}
		if err := printLines(out, links, m.time); err != nil {
			return err
		}
	}
	r.told.end()
	if !r.GetBool("json") {
		printCounts(out, m, counts)
	}
	return out.Flush()
}

func sum(of []int64) (total int64) {
	for _, n := range of {
		total += n
	}
	return total
}

// linksAt folds one partition up to a moment and returns its links by domain and code.
func (r *reading) linksAt(ctx context.Context, partition int32, end int64, m *moment) ([]*pb.Link, error) {
	links := map[string]*pb.Link{}
	err := r.envelopes(ctx, eventlog.EventsLink, partition, r.partitions, end, func(e *events.Envelope) error {
		r.told.step()
		m.see(e)
		if m.position != nil && e.GetBucket() != m.position.Bucket || !m.holds(e.GetStamp().GetTimeUs(), e.GetSeq()) {
			return nil
		}
		for _, event := range e.GetEvents() {
			ref := events.LinkOf(event)
			key := events.RouteKey(ref.GetNamespace(), ref.GetCode())
			links[key] = projections.EvolveLink(links[key], projections.HistoryEntry(e, event))
		}
		return nil
	})
	if err == nil {
		err = m.reached()
	}
	if err != nil {
		return nil, err
	}
	list := make([]*pb.Link, 0, len(links))
	for _, key := range slices.Sorted(maps.Keys(links)) {
		list = append(list, links[key])
	}
	return list, nil
}

// printLines prints links as NDJSON.
func printLines(w io.Writer, links []*pb.Link, at time.Time) error {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for _, link := range links {
		if err := lines.Encode(gateway.ShowLink(link, at)); err != nil {
			return err
		}
	}
	return nil
}

func printCounts(w io.Writer, m moment, counts map[string]int) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	total := 0
	for _, status := range []string{readmodels.StatusActive, readmodels.StatusScheduled, readmodels.StatusExpired, readmodels.StatusDisabled, readmodels.StatusBanned, readmodels.StatusDeleted} {
		if counts[status] > 0 {
			fmt.Fprintf(t, "%s\t%d\n", status, counts[status])
		}
		total += counts[status]
	}
	fmt.Fprintf(t, "links at %s\t%d\n", m, total)
	_ = t.Flush() // w keeps the error
}
