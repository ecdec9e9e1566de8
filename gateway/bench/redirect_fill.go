package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hoplog/hoplog/events/eventlog"
)

// openFor starts the process beside the redirect node. One whose log will be filled has set the log up once and then runs
// without the writer and the API: they would fold every link too, and the writer would miss the commands.
func (cfg *RedirectConfig) openFor(ctx context.Context) (*target, error) {
	if !cfg.Fill {
		return cfg.open(ctx)
	}
	if cfg.Running != nil || cfg.Kafka != "" {
		return nil, ErrFillOwn
	}
	first := cfg.Setup
	first.Arguments = append([]string{"--chdb", "none", "--domain", chainNamespace}, cfg.Arguments...)
	t, err := first.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.own.stop(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	cfg.Progress.tell("starting the log and the click sink", 0, 0)
	again, err := t.begin(ctx, "--roles", "analytics", "--chdb", "")
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.own, t.cpu = again, cpuOfPID(again.pid())
	return t, nil
}

// makeOrFill makes the links that will be visited.
func (cfg *RedirectConfig) makeOrFill(ctx context.Context, t *target, result *RedirectResult) (*linkSet, error) {
	if !cfg.Fill {
		return cfg.makeLinks(ctx, t, result)
	}
	began := time.Now()
	log, err := eventlog.Open(eventlog.Config{Brokers: strings.Split(t.kafka, ",")}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	count, err := log.Partitions(ctx, eventlog.EventsLink)
	if err != nil {
		return nil, fmt.Errorf("filling the log: %w", err)
	}
	shares, all := make([]int, count), 0
	for p := range shares {
		shares[p] = envelopesOf(shareOf(cfg.Links, count, p))
		all += shares[p]
	}
	chains, err := fillTopic(ctx, log, shares, largeBatch, func(done int64) { cfg.Progress.tell("filling the log", done, int64(all)) })
	if err != nil {
		return nil, err
	}
	result.MadeBy, result.Events, result.CreatedPerS = madeByFill, all, per(float64(cfg.Links), time.Since(began).Seconds())
	return filledLinks(chains), nil
}

// envelopesOf returns how many envelopes a chain of so many links has.
func envelopesOf(links int) int {
	if links == 0 {
		return 0
	}
	return links + (links-1)/(updateEvery-1)
}

// linkSet is what was made of many links, as little as visiting them needs.
type linkSet struct {
	domain string
	count  int
	// code appends the code of link i.
	code func(dst []byte, i int) []byte
	// target is where link i leads.
	target func(i int) string
}

// createdLinks are links that the API gave these codes.
func createdLinks(domain string, codes []string) *linkSet {
	return &linkSet{domain: domain, count: len(codes), code: func(dst []byte, i int) []byte { return append(dst, codes[i]...) }, target: targetOf}
}

// filledLinks are links of chains whose lengths differ by one at most.
func filledLinks(chains []*chain) *linkSet {
	s := &linkSet{domain: chainNamespace}
	for _, c := range chains {
		s.count += len(c.links)
	}
	of := func(i int) (*chain, int) { return chains[i%len(chains)], i / len(chains) }
	s.code = func(dst []byte, i int) []byte {
		c, at := of(i)
		return appendCode(dst, c.links[at].number)
	}
	s.target = func(i int) string {
		c, at := of(i)
		return c.target(at)
	}
	return s
}

// scatter spreads the numbers below count over all of them: those below any n lie evenly, for their steps are the golden
// section of the whole (three-distance theorem). It maps one to one.
func scatter(count int) func(i int) int {
	step := max(1, int(float64(count)*0.6180339887498949))
	for gcd(step, count) != 1 {
		step++
	}
	return func(i int) int { return i * step % count }
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
