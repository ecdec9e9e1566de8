package app

import (
	"encoding/json"
	"math"
	"net/http"
	"sync"
	"time"
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
	// ages say how old the data can be that this process answers from, false while nobody knows.
	ages []func() (time.Duration, bool)
}

func newHealth() *health { return &health{roles: map[string]func() roleHealth{}, starting: true} }

func (h *health) add(role string, check func() roleHealth) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order = append(h.order, role)
	h.roles[role] = check
}

// addAge adds data that this process answers from: how old they can be, and whether that is known.
func (h *health) addAge(age func() (time.Duration, bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ages = append(h.ages, age)
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

// report is the body of /readyz. State is the worst of the roles': a process that starts or drains is not ready.
type report struct {
	State    string                `json:"state"`
	Ready    bool                  `json:"ready"` // or degraded
	Draining bool                  `json:"draining,omitempty"`
	DataAge  *float64              `json:"data_age_seconds,omitempty"` // of the read models, at most; missing while nobody knows
	Reasons  []string              `json:"reasons"`
	Roles    map[string]roleHealth `json:"roles"`
}

func (h *health) report() report {
	h.mu.Lock()
	defer h.mu.Unlock()
	whole := ready
	r := report{Draining: h.draining, Reasons: []string{}, Roles: map[string]roleHealth{}}
	switch {
	case h.draining:
		whole, r.Reasons = notReady(""), append(r.Reasons, "the process stops")
	case h.starting:
		whole, r.Reasons = notReady(""), append(r.Reasons, "the process starts")
	}
	for _, role := range h.order {
		state := h.roles[role]()
		if h.trouble != nil {
			state = worse(state, h.trouble(role))
		}
		r.Roles[role] = state
		whole = worse(whole, state)
		if state.Reason != "" {
			r.Reasons = append(r.Reasons, role+": "+state.Reason)
		}
	}
	r.State, r.Ready = whole.State, whole.State != stateNot
	r.DataAge = h.dataAge()
	return r
}

// dataAge returns the age of the oldest data in seconds, nil while that of any is not known.
func (h *health) dataAge() *float64 {
	var oldest time.Duration
	for _, of := range h.ages {
		age, known := of()
		if !known {
			return nil
		}
		oldest = max(oldest, age)
	}
	if len(h.ages) == 0 {
		return nil
	}
	seconds := math.Round(oldest.Seconds()*1000) / 1000
	return &seconds
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
