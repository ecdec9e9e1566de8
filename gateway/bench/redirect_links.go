package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hoplog/hoplog/gateway/client"
)

const (
	makingBatch  = 1000
	makingAtOnce = 4
)

// makeLinks creates the links that will be visited through the API.
func (cfg *RedirectConfig) makeLinks(ctx context.Context, t *target, result *RedirectResult) (*linkSet, error) {
	domain, codes := "", make([]string, cfg.Links)
	began := time.Now()
	made := make(chan int)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(makingAtOnce + 1)
	group.Go(func() error {
		for done := 0; done < cfg.Links; {
			select {
			case n := <-made:
				done += n
				cfg.Progress.tell("making links", int64(done), int64(cfg.Links))
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	for from := 0; from < cfg.Links; from += makingBatch {
		group.Go(func() error {
			batch := make([]client.Link, min(makingBatch, cfg.Links-from))
			if err := patientBatch(ctx, t.client, from, batch); err != nil {
				return err
			}
			for i, link := range batch {
				codes[from+i] = strings.Clone(link.Code) // not the whole answer
			}
			if from == 0 {
				domain = batch[0].Domain
			}
			select {
			case made <- len(batch):
			case <-ctx.Done():
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("making links: %w", err)
	}
	result.MadeBy, result.Events, result.CreatedPerS = madeByAPI, cfg.Links, per(float64(cfg.Links), time.Since(began).Seconds())
	return createdLinks(domain, codes), nil
}

func makeBatch(ctx context.Context, api *client.API, from int, links []client.Link, o client.Options) error {
	rows := make([]client.LinkCreate, len(links))
	for i := range rows {
		rows[i].Target = targetOf(from + i)
	}
	results, _, err := api.CreateBatch(ctx, rows, o)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Link == nil {
			return fmt.Errorf("row %d: status %d: %+v", i, r.Status, r.Error)
		}
		links[i] = *r.Link
		links[i].Target = rows[i].Target
	}
	return nil
}

const (
	// drawsPerLink come from a set of links before the same come again: a memory that holds a part of the links would know the
	// same draws better than any visitors. fewestDraws at least; mostDraws, 4 bytes each, at most.
	drawsPerLink           = 4
	fewestDraws, mostDraws = 50_000, 32_000_000
	nodeAgent              = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
)

// visitSource asks for links in a fixed order of draws, by Zipf's law.
type visitSource struct {
	path  func(dst []byte, i int) []byte // appends that of link i, without the slash
	drawn []int32
	next  int
	rest  []byte // of a request, behind its path
	right func(status int) bool
}

func newVisitSource(host string, count int, path func(dst []byte, i int) []byte) *visitSource {
	return &visitSource{path: path, drawn: zipfDraws(1, count, min(max(drawsPerLink*count, fewestDraws), mostDraws)),
		rest: fmt.Appendf(nil, " HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n\r\n", host, nodeAgent), right: func(status int) bool { return status == http.StatusFound }}
}

// visits asks for so many of the links, which are scattered over all of them.
func (s *linkSet) visits(visited int) *visitSource {
	place := scatter(s.count)
	return newVisitSource(s.domain, visited, func(dst []byte, i int) []byte { return s.code(dst, place(i)) })
}

func (s *visitSource) request(dst []byte, _ int) []byte {
	if s.next++; s.next == len(s.drawn) {
		s.next = 0
	}
	dst = s.path(append(dst, "GET /"...), int(s.drawn[s.next]))
	return append(dst, s.rest...)
}

func (s *visitSource) answered(_, status int, _ []byte) (right, wrong int) {
	if s.right(status) {
		return 1, 0
	}
	return 0, 1
}

// Peer is another server to compare with. It runs already, on this machine, and holds links of its own.
type Peer struct {
	Name  string
	Addr  string   // host:port, also sent as Host
	PID   int      // whose processor time counts
	Paths []string // of its links, without the slash
}

// ParsePeer reads NAME=HOST:PORT,PID,FILE, where the file names the path of a link in each line.
func ParsePeer(text string) (p Peer, err error) {
	name, rest, ok := strings.Cut(text, "=")
	fields := strings.SplitN(rest, ",", 3)
	if !ok || name == "" || len(fields) != 3 {
		return p, fmt.Errorf("%q: want NAME=HOST:PORT,PID,FILE", text)
	}
	p.Name, p.Addr = name, fields[0]
	if _, err := fmt.Sscan(fields[1], &p.PID); err != nil || p.PID <= 0 {
		return p, fmt.Errorf("%q: %q is no process", text, fields[1])
	}
	if err := checkLoopback(p.Addr); err != nil {
		return p, err
	}
	lines, err := os.ReadFile(fields[2])
	if err != nil {
		return p, fmt.Errorf("reading a peer's links: %w", err)
	}
	for line := range strings.Lines(string(lines)) {
		if path := strings.TrimPrefix(strings.TrimSpace(line), "/"); path != "" && !strings.ContainsAny(path, " \t\r") {
			p.Paths = append(p.Paths, path)
		}
	}
	if len(p.Paths) < 2 {
		return p, fmt.Errorf("%s names %d links: want two at least", fields[2], len(p.Paths))
	}
	return p, nil
}

// source visits a peer's links, which may be answered with any redirect.
func (p *Peer) source() *visitSource {
	s := newVisitSource(p.Addr, len(p.Paths), func(dst []byte, i int) []byte { return append(dst, p.Paths[i]...) })
	s.right = func(status int) bool { return status >= 300 && status < 400 }
	return s
}
