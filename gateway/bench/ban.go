package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hoplog/hoplog/gateway/client"
)

// BanConfig is how many redirect nodes must refuse a link, and how often.
type BanConfig struct {
	Setup
	Nodes  int
	Rounds int
}

// BanResult is how long visitors still got through after the API had answered.
type BanResult struct {
	Nodes int `json:"nodes"`
	// Deny is for entries of the denylist, Ban for bans of links.
	Deny   BanTimes `json:"deny"`
	Ban    BanTimes `json:"ban"`
	Floors []Floor  `json:"floors"`
}

// BanTimes are the times from the API's answer until the last node refused; 0 when all did before the answer was there.
type BanTimes struct {
	Rounds    uint64  `json:"rounds"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
	MaxMS     float64 `json:"max_ms"`
	AnswerMS  float64 `json:"answer_p50_ms"` // what the write itself took
	Latencies []Bin   `json:"latencies"`
}

const (
	// banEvery is the pause between two visits of one node: the error of a time.
	banEvery = 500 * time.Microsecond
	// banWithin bounds one round.
	banWithin = 10 * time.Second
)

// Ban measures how soon all of several redirect nodes, processes of their own, refuse what was denied or banned.
func Ban(ctx context.Context, cfg BanConfig) (_ *BanResult, err error) {
	if cfg.Kafka == "" {
		// No library there: ClickHouse, which has no part in this, would be busy with its own start.
		cfg.Arguments = append(cfg.Arguments, "--chdb", "none")
	}
	t, err := cfg.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	nodes, stop, err := cfg.startNodes(ctx, t)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	links, err := cfg.makeLinks(ctx, t, nodes)
	if err != nil {
		return nil, err
	}
	result := &BanResult{Nodes: cfg.Nodes}
	for _, kind := range []struct {
		name  string
		into  *BanTimes
		links []client.Link
		write func(context.Context, client.Link) error
	}{
		{"denying codes", &result.Deny, links[:cfg.Rounds], func(ctx context.Context, l client.Link) error {
			_, err := t.client.Deny(ctx, client.DenyAdd{Kind: "code", Value: l.Domain + "/" + l.Code}, client.Options{})
			return err
		}},
		{"banning links", &result.Ban, links[cfg.Rounds:], func(ctx context.Context, l client.Link) error {
			_, err := t.client.Ban(ctx, l.Domain, l.Code, client.Options{Reason: "bench"})
			return err
		}},
	} {
		if err := cfg.rounds(ctx, kind.name, nodes, kind.links, kind.write, kind.into); err != nil {
			return nil, err
		}
	}
	result.Floors = []Floor{atMost("ms from the answer to a denial until the last node refuses, p99", floorBan, result.Deny.P99MS),
		atMost("ms from the answer to a ban until the last node refuses, p99", floorBan, result.Ban.P99MS)}
	return result, nil
}

// startNodes starts the redirect nodes and returns their addresses, and how to stop those that were started.
func (cfg *BanConfig) startNodes(ctx context.Context, t *target) (nodes []string, stop func() error, err error) {
	var running []*process
	stop = func() (all error) {
		for _, p := range running {
			all = errors.Join(all, p.stop())
		}
		return all
	}
	for i := range cfg.Nodes {
		cfg.Progress.tell("starting redirect nodes", int64(i), int64(cfg.Nodes))
		ports, err := freePorts(2)
		if err != nil {
			return nil, stop, err
		}
		name := fmt.Sprintf("node-%d", i+1)
		p, err := cfg.start(ctx, ports[1], nil, filepath.Join(t.dir, name+".log"), "serve", "--roles", "redirect", "--data", filepath.Join(t.dir, name),
			"--kafka", t.kafka, "--redirect", ports[0], "--admin", ports[1], "--node", name)
		if err != nil {
			return nil, stop, err
		}
		running, nodes = append(running, p), append(nodes, ports[0])
	}
	return nodes, stop, nil
}

// makeLinks creates a link for each round of both kinds, and waits until every node serves the last one.
func (cfg *BanConfig) makeLinks(ctx context.Context, t *target, nodes []string) ([]client.Link, error) {
	cfg.Progress.tell("making links", 0, 0)
	links := make([]client.Link, 2*cfg.Rounds)
	for from := 0; from < len(links); from += makingBatch {
		if err := makeBatch(ctx, t.client, from, links[from:min(from+makingBatch, len(links))], client.Options{}); err != nil {
			return nil, err
		}
	}
	for _, node := range nodes {
		for _, l := range links {
			if err := t.visit(ctx, node, l.Domain, l.Code, l.Target); err != nil {
				return nil, err
			}
		}
	}
	return links, nil
}

func (cfg *BanConfig) rounds(ctx context.Context, step string, nodes []string, links []client.Link, write func(context.Context, client.Link) error, into *BanTimes) error {
	var after, answers Histogram
	for i, l := range links {
		cfg.Progress.tell(step, int64(i), int64(len(links)))
		took, late, err := banRound(ctx, nodes, l, func(ctx context.Context) error { return write(ctx, l) })
		if err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		answers.Add(took)
		after.Add(late)
	}
	*into = BanTimes{Rounds: after.Count(), P50MS: ms(after.Quantile(0.5)), P99MS: ms(after.Quantile(0.99)), MaxMS: ms(after.Max()),
		AnswerMS: ms(answers.Quantile(0.5)), Latencies: after.Bins()}
	return nil
}

// banRound visits a link on every node all the time while it is refused by a write: it returns what the write took, and how
// long after its answer the last node refused.
func banRound(ctx context.Context, nodes []string, l client.Link, write func(context.Context) error) (took, late time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, banWithin)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	refused := make([]time.Time, len(nodes))
	for i, node := range nodes {
		group.Go(func() (err error) {
			refused[i], err = untilRefused(ctx, node, l)
			return err
		})
	}
	var answered time.Time
	group.Go(func() error {
		began := time.Now()
		err := write(ctx)
		answered = time.Now()
		took = answered.Sub(began)
		return err
	})
	if err := group.Wait(); err != nil {
		return 0, 0, err
	}
	for _, at := range refused {
		late = max(late, at.Sub(answered))
	}
	return took, late, nil
}

// untilRefused visits a link on a node until that refuses, and returns when its answer was there.
func untilRefused(ctx context.Context, node string, l client.Link) (time.Time, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+node+"/"+l.Code, nil)
	if err != nil {
		return time.Time{}, fmt.Errorf("visiting %s: %w", l.ShortUrl, err)
	}
	req.Host = l.Domain
	for {
		resp, err := http.DefaultTransport.RoundTrip(req) // a client would follow the redirect
		if err != nil {
			return time.Time{}, fmt.Errorf("visiting %s until it is refused: %w", l.ShortUrl, err)
		}
		resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusForbidden:
			return time.Now(), nil
		case http.StatusFound:
		default:
			return time.Time{}, fmt.Errorf("%w: visiting %s: %s", ErrWrong, l.ShortUrl, resp.Status)
		}
		time.Sleep(banEvery)
	}
}

func (r *BanResult) floors() []Floor { return r.Floors }

func (r *BanResult) print(w io.Writer) error {
	t := table(w)
	fmt.Fprintln(t, "from the API's answer until the last node refuses\trounds\tp50\tp99\tmax\tthe write itself, p50")
	for _, k := range []struct {
		name string
		BanTimes
	}{{"an entry of the denylist", r.Deny}, {"a ban", r.Ban}} {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", k.name, k.Rounds, short(k.P50MS), short(k.P99MS), short(k.MaxMS), short(k.AnswerMS))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d redirect nodes, each visited every %.1f ms; 0 when all refused before the answer was there.\n\ndenials:\n%s\nbans:\n%s\n",
		r.Nodes, ms(banEvery), plot(r.Deny.Latencies), plot(r.Ban.Latencies))
	return err
}
