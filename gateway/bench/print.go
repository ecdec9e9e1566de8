package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

func table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0) }

// cost writes microseconds of processor time, or that they are not known.
func cost(us float64) string {
	if us == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f µs", us)
}

func (r *CreateResult) floors() []Floor { return r.Floors }

func (r *CreateResult) print(w io.Writer) error {
	t := table(w)
	fmt.Fprintln(t, "\tlinks/s\tp50\tp99\tmax\terrors\tCPU/link\tload's CPU/link\tof two hops alone\tconnections")
	for _, p := range r.Phases {
		ratio := "-"
		if p.LimitRatio > 0 {
			ratio = fmt.Sprintf("%.2f", p.LimitRatio)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\n", p.Name, thousands(p.PerSecond), short(p.P50MS), short(p.P99MS), short(p.MaxMS), p.Errors,
			cost(p.ServerCPU), cost(p.LoadCPU), ratio, p.Connections)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "CPU is user and system time: of the hoplog process with its broker, ClickHouse not counted; and of the load beside it.\n\n")
	t = table(w)
	fmt.Fprintf(t, "limits in the same run\tper second\tp50\tp99\n")
	fmt.Fprintf(t, "fsync of 4 KiB, one after the other\t%s\t%s\t%s\n", thousands(r.Limits.Fsync.PerSecond), short(r.Limits.Fsync.P50MS), short(r.Limits.Fsync.P99MS))
	for _, h := range []Hops{r.Limits.Single, r.Limits.Batch} {
		fmt.Fprintf(t, "two durable hops alone, %d under way\t%s\t%s\t%s\n", h.UnderWay, thousands(h.PerSecond), short(h.P50MS), short(h.P99MS))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, p := range r.Phases {
		fmt.Fprintf(w, "%s: links/s over time %s\n%s\n", p.Name, spark(p.Rates), plot(p.Latencies))
	}
	fmt.Fprintf(w, "verified: %s links answered, %s envelopes in the log, %d void; %d read back, %d visited, as created\n",
		thousands(float64(r.Truth.Answered)), thousands(float64(r.Truth.Envelopes)), r.Truth.Void, r.Truth.Read, r.Truth.Visited)
	return nil
}

func (r *RedirectResult) floors() []Floor { return r.Floors }

func (r *RedirectResult) print(w io.Writer) error {
	t := table(w)
	fmt.Fprintln(t, "\trequests/s\tCPU/request\tp50\tp99\tfrom memory\tp99 by round")
	all := []*RedirectServer{&r.Hoplog}
	if r.Nginx != nil {
		all = []*RedirectServer{r.Nginx, r.NginxBusy, &r.Hoplog}
	}
	if r.Few != nil {
		all = append(all, r.Few, r.Small)
	}
	for i := range r.Beside {
		all = append(all, &r.Beside[i])
	}
	for _, s := range all {
		hits := "-"
		if s.Hits > 0 {
			hits = fmt.Sprintf("%.1f %%", 100*s.Hits)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, thousands(s.PerSecond), cost(s.CPU), short(s.P50MS), short(s.P99MS), hits, latest(s.Rounds))
	}
	fmt.Fprintf(t, "\nat half of hoplog's load\trequests/s\tCPU/request\tp50\tp99\tp99 by round\n")
	for _, s := range all {
		if h := s.Half; h != nil {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, thousands(h.PerSecond), cost(h.CPU), short(h.P50MS), short(h.P99MS), latest(s.Halves))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if q := r.Ratios; r.Nginx != nil {
		fmt.Fprintf(w, "\nhoplog / nginx: CPU %.2f; requests/s %.2f, %.2f with the same clicks for log and sink beside nginx; p99 at half load %.2f and %.2f\n",
			q.CPU, q.Throughput, q.ThroughputBusy, q.HalfP99, q.HalfP99Busy)
	}
	for _, s := range r.Beside {
		fmt.Fprintf(w, "%s / hoplog: CPU %.2f, requests/s %.2f\n", s.Name, per(s.CPU, r.Hoplog.CPU), per(s.PerSecond, r.Hoplog.PerSecond))
	}
	if r.Without != "" {
		fmt.Fprintln(w, r.Without)
	}
	fmt.Fprintf(w, "medians; CPU is user and system time of the redirect node (of nginx's worker); the load, the log and the click sink are other processes on the same cores.\n")
	if r.Few != nil {
		fmt.Fprintf(w, "growth of CPU per redirect from %s links to %s, as many of them visited: %.2f\n", thousands(float64(r.SmallLinks)), thousands(float64(r.Links)), r.Ratios.Growth)
	}
	how := "created through the API"
	if r.MadeBy == madeByFill {
		how = "written straight to the log"
	}
	fmt.Fprintf(w, "%s links (%s at %s/s), %s of them visited by Zipf's law with s = %.2f; %d checked first.", thousands(float64(r.Links)), how, thousands(r.CreatedPerS),
		thousands(float64(r.Visited)), zipfExponent, r.Checked)
	if r.ReadySeconds > 0 {
		fmt.Fprintf(w, "\nThe node was ready in %.1f s on an empty disk (%s events/s), in %.1f s when started again; it takes %.0f bytes of disk a link.\n"+
			"In memory: %.0f MiB of its own without links, %.0f MiB started again (%.0f of them blocks of the store), %.1f bytes of heap a link beside (%.1f of them the filter over all codes), %.0f MiB in all after the load.",
			r.ReadySeconds, thousands(per(float64(r.Events), r.ReadySeconds)), r.AgainSeconds, r.DiskBytes,
			r.Empty.OwnMiB, r.Again.OwnMiB, r.Again.BlocksMiB, r.HeapBytes, r.FilterBytes, r.MemoryMiB)
	}
	fmt.Fprint(w, "\n\n")
	if n := len(r.Hoplog.Rounds); n > 0 {
		fmt.Fprintf(w, "hoplog, last round:\n%s\n", plot(r.Hoplog.Rounds[n-1].Latencies))
	}
	return nil
}

// latest is the p99 of each round.
func latest(rounds []RedirectRound) (line string) {
	for _, r := range rounds {
		line += short(r.P99MS) + "  "
	}
	return line
}

func (r *ReplayResult) floors() []Floor { return r.Floors }

func (r *ReplayResult) print(w io.Writer) error {
	t := table(w)
	fmt.Fprintln(t, "\tper second\tCPU each\tby round")
	tails, folds := "", ""
	for _, round := range r.Rounds {
		tails, folds = tails+thousands(round.TailPerSecond)+"  ", folds+thousands(round.PerSecond)+"  "
	}
	fmt.Fprintf(t, "limit: log tailed, nothing kept\t%s\t%s\t%s\n", thousands(r.TailPerSecond), cost(r.TailCPU), tails)
	fmt.Fprintf(t, "log to Pebble\t%s\t%s\t%s\n", thousands(r.PerSecond), cost(r.CPU), folds)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%.2f of the limit; medians; CPU is that of broker, reader and store together, which share a process.\n", r.ShareOfTail)
	fmt.Fprintf(w, "%s events of %s links, %.0f bytes a record, filled at %s/s; the store takes %.0f bytes a link.\n", thousands(float64(r.Events)), thousands(float64(r.Links)),
		r.RecordBytes, thousands(r.FilledPerS), r.StoreBytes)
	fmt.Fprintf(w, "verified: every envelope accepted, %d links looked up, as written\n\nevents/s over time, last round  %s\n\n", r.LinksLookedUp, spark(r.EventsOverTime))
	return nil
}
