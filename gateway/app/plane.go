package app

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/gateway/certificates"
	"github.com/hoplog/hoplog/readmodels/deny"
	"github.com/hoplog/hoplog/readmodels/redirects"
)

// servePlane opens the listeners of the redirects and serves them.
func (n *node) servePlane(store *redirects.Store, recorder *gateway.ClickRecorder, gate *deny.Gate, age *dataAge) error {
	deps := gateway.RedirectDeps{Store: wholeStore{store, &age.complete}, Domains: domains{n.control}, Recorder: recorder, Gate: gate, Logger: n.logger,
		Complete: func() error { return n.redirectsComplete(store, age) }, Loops: n.GetInt("redirect-loops"), TrustedHops: n.GetInt("trusted-hops"),
		MaxConnections: connections(descriptors(), n.redirectListeners())}
	if err := n.trust(&deps); err != nil {
		return err
	}
	var err error
	if deps.Scan, err = n.scanGuard(); err != nil {
		return err
	}
	plane, err := gateway.NewRedirect(deps)
	if err != nil {
		return err
	}
	n.parts.plane, n.parts.scan = plane, deps.Scan
	plain, err := n.listen("redirect")
	if err != nil {
		return err
	}
	if err := n.serveTLS(plane); err != nil {
		return errors.Join(err, plain.Close())
	}
	n.background(func() error { return plane.Serve(plain) })
	n.onStop("redirects", plane.Shutdown)
	return nil
}

// trust reads whom the redirects believe when it is about who the visitor is.
func (n *node) trust(deps *gateway.RedirectDeps) (err error) {
	switch header := strings.ToLower(n.GetString("trusted-header")); header {
	case "x-forwarded-for":
	case "forwarded":
		deps.TrustForwarded = true
	default:
		return usagef("trusted-header %q: want x-forwarded-for or forwarded", header)
	}
	if deps.TrustedProxies, err = n.networks("trusted-proxies"); err != nil {
		return err
	}
	if len(deps.TrustedProxies) > 0 && deps.TrustedHops > 0 {
		return usagef("trusted-proxies and trusted-hops: want one of them")
	}
	deps.Proxies, err = n.networks("proxy-protocol")
	return err
}

// serveTLS serves the redirects over TLS too, if asked to.
func (n *node) serveTLS(plane *gateway.Redirect) error {
	addr, dir := n.GetString("redirect-tls"), n.GetString("redirect-certs")
	if addr == "" && dir == "" {
		return nil
	}
	if addr == "" || dir == "" {
		return usagef("redirect-tls and redirect-certs belong together")
	}
	store, err := certificates.Open(dir, n.logger)
	if err != nil {
		return usageError{err}
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listening for redirect-tls: %w", err)
	}
	n.work("certificates", store.Run)
	n.background(func() error { return plane.ServeTLS(ln, store.TLS()) })
	return nil
}

// background runs what ends by its own stop; the process ends when it fails before.
func (n *node) background(serve func() error) {
	go func() {
		if err := serve(); err != nil {
			n.failed <- err
		}
	}()
}
