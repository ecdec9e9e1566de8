package app

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hoplog/hoplog/commands/handler"
	"github.com/hoplog/hoplog/events"
	"github.com/hoplog/hoplog/gateway"
	"github.com/hoplog/hoplog/schemas/pb"
)

// defaultOwner owns the links made with the first key.
const defaultOwner = "default"

// bootstrap writes to the control log what a new installation needs: the default domain, the key of the code permutation
// and the first API key.
type bootstrap struct {
	control *handler.Control
	logger  *slog.Logger
	// domain is the default domain to be, nil if the operator named none.
	domain *pb.Domain
	// adminKey is the first API key; empty: a random one.
	adminKey string
	// shown is told the first key, before it is written, if it is a random one.
	shown func(key string)
}

const (
	bootstrapTimeout = 5 * time.Second
	bootstrapActor   = "bootstrap"
)

// run tries until everything is there or ctx is done.
func (b *bootstrap) run(ctx context.Context) {
	for pause := 20 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, time.Second) {
		if err := b.try(ctx); err == nil {
			return
		} else if ctx.Err() == nil {
			b.logger.Debug("bootstrap waits", "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (b *bootstrap) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootstrapTimeout)
	defer cancel()
	if err := b.control.WaitEnd(ctx); err != nil {
		return err
	}
	state := b.control.State()
	if len(state.PermutationKeys()) == 0 {
		key := make([]byte, 16)
		_, _ = rand.Read(key) // never fails
		if err := b.propose(ctx, &pb.ControlCommand{Kind: &pb.ControlCommand_AddPermutationKey{AddPermutationKey: &pb.PermutationKey{Version: 1, Key: key}}}); err != nil {
			return err
		}
	}
	if state.DefaultDomain() == nil && b.domain != nil {
		if err := b.propose(ctx, &pb.ControlCommand{Kind: &pb.ControlCommand_AddDomain{AddDomain: b.domain}}); err != nil {
			return err
		}
	}
	if state.Keys() == 0 {
		return b.addKey(ctx)
	}
	return nil
}

func (b *bootstrap) addKey(ctx context.Context) error {
	if b.adminKey == "" {
		b.adminKey, _ = gateway.NewAPIKey()
		b.shown(b.adminKey)
	}
	hash := sha256.Sum256([]byte(b.adminKey))
	key := &pb.ApiKey{Id: hex.EncodeToString(hash[:4]), Hash: hash[:], Owner: defaultOwner, Admin: true}
	return b.propose(ctx, &pb.ControlCommand{Kind: &pb.ControlCommand_AddKey{AddKey: key}})
}

func (b *bootstrap) propose(ctx context.Context, c *pb.ControlCommand) error {
	c.Actor = bootstrapActor
	e, err := b.control.Propose(ctx, c)
	if err != nil {
		return err
	}
	if e.GetOutcome().GetError() != "" {
		return errors.New(e.GetOutcome().GetDetail())
	}
	return nil
}

// domainOf makes the default domain from --domain, or from the redirect address in dev.
func domainOf(name, redirect string, dev bool) (*pb.Domain, error) {
	if name != "" {
		namespace, err := events.NormalizeNamespace(name)
		if err != nil {
			return nil, usagef("domain: %w", err)
		}
		return &pb.Domain{Namespace: namespace, IsDefault: true}, nil
	}
	if !dev {
		return nil, nil
	}
	port, err := portOf(redirect)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, host := range []string{"localhost", "127.0.0.1"} {
		namespace, err := events.NormalizeNamespace(host + ":" + port)
		if err != nil {
			return nil, fmt.Errorf("domain of this machine: %w", err)
		}
		names = append(names, namespace)
	}
	return &pb.Domain{Namespace: names[0], Aliases: names[1:], IsDefault: true}, nil
}
