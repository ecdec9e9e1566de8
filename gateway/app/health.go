package app

import (
	"encoding/json"
	"net/http"
	"sync"
)

// States of a role.
const (
	stateReady    = "ready"
	stateDegraded = "degraded" // serves, with the reason why not as it should
	stateNot      = "not_ready"
)

// roleHealth is how one role of this process is.
type roleHealth struct {
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

func notReady(reason string) roleHealth { return roleHealth{stateNot, reason} }

func degraded(reason string) roleHealth { return roleHealth{stateDegraded, reason} }

// worse returns the worse of two states, with both reasons if they are as bad.
func worse(a, b roleHealth) roleHealth {
	rank := map[string]int{stateReady: 0, stateDegraded: 1, stateNot: 2}
	switch {
	case rank[a.State] < rank[b.State]:
		return b
	case rank[a.State] == rank[b.State] && a.Reason != "" && b.Reason != "":
		a.Reason += "; " + b.Reason
	}
	return a
}

var ready = roleHealth{State: stateReady}

// health answers /readyz from the roles' own words.
type health struct {
	mu       sync.Mutex
	order    []string
	roles    map[string]func() roleHealth
	draining bool
	starting bool
	// trouble is what a role does not see of itself; nil until it is known.
	trouble func(role string) roleHealth
}

func newHealth() *health { return &health{roles: map[string]func() roleHealth{}, starting: true} }

func (h *health) add(role string, check func() roleHealth) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order = append(h.order, role)
	h.roles[role] = check
}

func (h *health) started() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starting = false
}

func (h *health) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
}

func (h *health) isDraining() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.draining
}

// report is the body of /readyz.
type report struct {
	Ready    bool                  `json:"ready"`
	Draining bool                  `json:"draining,omitempty"`
	Roles    map[string]roleHealth `json:"roles"`
}

func (h *health) report() report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := report{Ready: !h.draining && !h.starting, Draining: h.draining, Roles: map[string]roleHealth{}}
	for _, role := range h.order {
		state := h.roles[role]()
		if h.trouble != nil {
			state = worse(state, h.trouble(role))
		}
		r.Roles[role] = state
		if state.State == stateNot {
			r.Ready = false
		}
	}
	return r
}

func (h *health) serveReady(w http.ResponseWriter, _ *http.Request) {
	r := h.report()
	status := http.StatusOK
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, r)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}
