package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// CreateTruth is what was found when it was looked whether the creates happened.
type CreateTruth struct {
	Answered  int      `json:"links_answered"`          // as created
	Envelopes int64    `json:"envelopes_in_log"`        // that readers accepted meanwhile; -1: not known
	Void      int64    `json:"void_envelopes"`          // among them none of these
	Read      int      `json:"links_read_back"`         // with the target that was sent
	Visited   int      `json:"links_visited,omitempty"` // and redirecting to it
	Problems  []string `json:"problems,omitempty"`
}

// counts are how many envelopes of links a process has folded.
type counts struct{ accepted, void int64 }

// projection that counts every accepted envelope of links
const countedProjection = "links/"

// count asks the admin address; without one nothing is known.
func (t *target) count(ctx context.Context) (*counts, error) {
	if t.admin == "" {
		return nil, nil
	}
	var status struct {
		Projections []struct {
			Projection string `json:"projection"`
			Applied    int64  `json:"applied"`
			Voids      int64  `json:"voids"`
		} `json:"projections"`
	}
	if err := statusOf(ctx, t.admin, &status); err != nil {
		return nil, err
	}
	for _, p := range status.Projections {
		if strings.HasPrefix(p.Projection, countedProjection) {
			return &counts{p.Applied, p.Voids}, nil
		}
	}
	return nil, nil // a process without the API
}

// verify looks whether the log has one envelope for each link, and whether a sample of the links reads back and redirects.
func (t *target) verify(ctx context.Context, before *counts, sources ...*linkSource) (CreateTruth, error) {
	truth := CreateTruth{Envelopes: -1}
	for _, s := range sources {
		truth.Answered += s.right
	}
	after, err := t.count(ctx)
	if err != nil {
		return truth, err
	}
	if before != nil && after != nil {
		truth.Envelopes, truth.Void = after.accepted-before.accepted, after.void-before.void
		// Others may write to what was running before.
		if truth.Envelopes < int64(truth.Answered) || t.own != nil && truth.Envelopes > int64(truth.Answered) {
			truth.Problems = append(truth.Problems, fmt.Sprintf("%d envelopes in the log for %d links", truth.Envelopes, truth.Answered))
		}
		if truth.Void > 0 && t.own != nil {
			truth.Problems = append(truth.Problems, fmt.Sprintf("%d void envelopes", truth.Void))
		}
	}
	for _, s := range sources {
		for _, want := range s.sample {
			if err := ctx.Err(); err != nil {
				return truth, err
			}
			t.look(ctx, want.Domain, want.Code, want.Target, &truth)
		}
	}
	return truth, nil
}

func (t *target) look(ctx context.Context, domain, code, want string, truth *CreateTruth) {
	link, err := t.client.Get(ctx, domain, code, "")
	switch {
	case err != nil:
		truth.Problems = append(truth.Problems, fmt.Sprintf("reading %s/%s: %v", domain, code, err))
		return
	case link.Target != want:
		truth.Problems = append(truth.Problems, fmt.Sprintf("%s/%s has the target %s, not %s", domain, code, link.Target, want))
		return
	}
	truth.Read++
	if t.redirect == "" {
		return
	}
	if err := t.visit(ctx, t.redirect, domain, code, want); err != nil {
		truth.Problems = append(truth.Problems, err.Error())
		return
	}
	truth.Visited++
}

// visitWithin is how long a redirect node may take to follow.
const visitWithin = 10 * time.Second

// visit follows a link until it leads to where it should.
func (t *target) visit(ctx context.Context, node, domain, code, want string) error {
	direct := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for began := time.Now(); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+node+"/"+code, nil)
		if err != nil {
			return fmt.Errorf("visiting %s/%s: %w", domain, code, err)
		}
		req.Host = domain
		resp, err := direct.Do(req)
		if err != nil {
			return fmt.Errorf("visiting %s/%s: %w", domain, code, err)
		}
		resp.Body.Close()
		if resp.Header.Get("Location") == want {
			return nil
		}
		err = fmt.Errorf("visiting %s/%s: %s to %q, not to %q", domain, code, resp.Status, resp.Header.Get("Location"), want)
		if time.Since(began) > visitWithin {
			return err
		}
		if ended := pause(ctx, readyPoll); ended != nil {
			return errors.Join(err, ended)
		}
	}
}
