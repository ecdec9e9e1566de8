package app

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/hoplog/hoplog/gateway/scan"
)

// Whoever comes from these is a machine of ours or a proxy that does not say whose visits it brings.
const scanAllow = "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,169.254.0.0/16,fc00::/7,fe80::/10"

func scanFlags(f *pflag.FlagSet) {
	f.Int("scan-limit", 60, "unknown codes a minute that an address may ask for, beside half as many as it follows links, before it gets 429 (0: any number)")
	f.Int("scan-node-limit", 2000, "unknown codes a second in all above which each address may ask for an eighth of that")
	f.String("scan-allow", scanAllow, "networks, comma separated, that may ask for any number of unknown codes")
}

// scanGuard is the guard against guessing of codes, nil if it is off.
func (s settings) scanGuard() (*scan.Guard, error) {
	limit := s.GetInt("scan-limit")
	if limit == 0 {
		return nil, nil
	}
	allow, err := s.networks("scan-allow")
	if err != nil {
		return nil, err
	}
	guard, err := scan.New(scan.Config{Limit: limit, NodeLimit: s.GetInt("scan-node-limit"), Allow: allow})
	if err != nil {
		return nil, usageError{err}
	}
	return guard, nil
}

// networks reads a setting that is a list of networks.
func (s settings) networks(name string) (list []netip.Prefix, err error) {
	for network := range strings.SplitSeq(s.GetString(name), ",") {
		if network = strings.TrimSpace(network); network == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return nil, usagef("%s %q: want networks as 10.0.0.0/8: %w", name, network, err)
		}
		list = append(list, prefix)
	}
	return list, nil
}

var (
	metricConnections = prometheus.NewDesc("hoplog_redirect_connections", "Open connections of the redirects.", []string{"listener"}, nil)
	metricAccepted    = prometheus.NewDesc("hoplog_redirect_connections_accepted_total", "Connections that were taken.", []string{"listener"}, nil)
	metricEnded       = prometheus.NewDesc("hoplog_redirect_connections_ended_total", "Connections that the node ended or turned away: too many, too slow, or no HTTP.", []string{"listener", "reason"}, nil)
	metricScanRows    = prometheus.NewDesc("hoplog_redirect_scan_sources", "Addresses and networks that asked for unknown codes lately.", []string{"state"}, nil)
	metricScanRefused = prometheus.NewDesc("hoplog_redirect_scan_refused_total", "Visits answered with 429.", []string{"what"}, nil)
	metricScanUnknown = prometheus.NewDesc("hoplog_redirect_unknown_codes_total", "Visits of codes that do not exist, but of networks that may guess.", nil, nil)
	metricScanEvicted = prometheus.NewDesc("hoplog_redirect_scan_evicted_total", "Sources forgotten because others took their place.", nil, nil)
)

// collectVisitors shows who comes to the redirects.
func (n *node) collectVisitors(gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	if plane := n.parts.plane; plane != nil {
		for _, c := range plane.Connections() {
			gauge(metricConnections, float64(c.Open), c.Listener)
			count(metricAccepted, c.Accepted, c.Listener)
			count(metricEnded, c.Refused, c.Listener, "busy")
			count(metricEnded, c.TimedOut, c.Listener, "slow")
			count(metricEnded, c.Malformed, c.Listener, "malformed")
		}
	}
	if guard := n.parts.scan; guard != nil {
		s := guard.Status(time.Now().UnixMicro())
		gauge(metricScanRows, float64(s.Sources-s.Slowed-s.Closed), "answered")
		gauge(metricScanRows, float64(s.Slowed), "slowed")
		gauge(metricScanRows, float64(s.Closed), "closed")
		count(metricScanRefused, s.RefusedGuesses, "unknown")
		count(metricScanRefused, s.RefusedLinks, "link")
		count(metricScanUnknown, s.Guesses)
		count(metricScanEvicted, s.Evicted)
	}
}

// scanStatus is for the status; nil without a guard.
func (n *node) scanStatus() *scan.Status {
	if n.parts.scan == nil {
		return nil
	}
	s := n.parts.scan.Status(time.Now().UnixMicro())
	return &s
}

// scanLine says how guessing is, for people.
func scanLine(s *scan.Status) string {
	if !s.UnderWay {
		return fmt.Sprintf("nobody is refused; %d addresses and networks asked for unknown codes lately", s.Sources)
	}
	line := fmt.Sprintf("codes are being guessed: %d slowed, %d closed, %d guesses and %d links refused since the start", s.Slowed, s.Closed, s.RefusedGuesses, s.RefusedLinks)
	if s.Network != "" {
		line += ", last " + s.Network
	}
	if s.Pressed {
		line += "; from so many that each is allowed an eighth"
	}
	return line
}

// scansOff: a scan is nothing that is broken, but somebody should know.
func (r *statusReport) scansOff(say func(part, off, do string)) {
	if s := r.Scan; s != nil && s.UnderWay && (s.Pressed || s.Closed > 0) {
		say("redirects", scanLine(s), "nothing is broken; `hoplog deny` takes the network out for good, --scan-allow exempts one that may")
	}
}
