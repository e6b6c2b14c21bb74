package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/bench/figures"
)

// Nodes of the secured installation that is made for the run.
const (
	institution = "alpha"
	gives       = "giver"
	taker       = "taker"
)

func kitOf(kits, node string) string { return filepath.Join(kits, "institutions", institution, node) }

// secured serves the object once more, to who has a certificate.
func (g *giver) secured(ctx context.Context, kits string) (*shards.Store, error) {
	identity, err := mtls.Open(kitOf(kits, gives))
	if err != nil {
		return nil, err
	}
	identity.Admit(func(string) bool { return true }) // the bench has no plan
	return g.offer(ctx, shards.StoreConfig{Identity: identity})
}

// securedPath measures getting an object over TLS beside getting it in plain text, from one process.
func securedPath(ctx context.Context, size, repeat int) (rows []figures.Row, err error) {
	kits, err := os.MkdirTemp("", "reknit-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(kits)) }()
	options := provision.Options{Dir: kits, Institution: institution, Nodes: []string{gives, taker}}
	if err := provision.Security(options); err != nil {
		return nil, err
	}
	identity, err := mtls.Open(kitOf(kits, taker))
	if err != nil {
		return nil, err
	}
	there, err := bus.ReadIdentity(kitOf(kits, gives))
	if err != nil {
		return nil, err
	}
	o, err := start(size, kits)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.stop()) }()
	b := &bench{other: o, data: content(size), into: make([]byte, size)}
	plain := shards.Source{Name: gives, URL: o.Store, Bucket: storeBucket}
	over := shards.Source{Name: gives, URL: o.Secured, Bucket: storeBucket, Options: func() []nats.Option { return identity.Options(there.Key) }}
	ways := []*way{
		{name: "over TLS", before: func(ctx context.Context) error { return b.connectTo(ctx, over) }, move: b.get},
		{name: "in plain text", before: func(ctx context.Context) error { return b.connectTo(ctx, plain) }, move: b.get, baseline: true},
	}
	for turn := range repeat * len(ways) {
		w := ways[(turn+turn/len(ways))%len(ways)]
		if err := b.once(ctx, w); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return b.rows(fmt.Sprintf("give %d MiB", size>>20), ways, 0), nil
}
