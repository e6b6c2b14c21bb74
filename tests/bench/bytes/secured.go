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
	giver       = "giver"
	taker       = "taker"
)

func kitOf(kits, node string) string { return filepath.Join(kits, "institutions", institution, node) }

// secured serves the object once more, to who has a certificate.
func (s *served) secured(ctx context.Context, data []byte, memory bool, kits string) (*shards.Store, error) {
	identity, err := mtls.Open(kitOf(kits, giver))
	if err != nil {
		return nil, err
	}
	return s.store(ctx, data, shards.StoreConfig{Memory: memory, TLS: identity.Server()})
}

// securedPath measures getting an object over TLS beside getting it in plain text, from one process.
func securedPath(ctx context.Context, size int, memory bool, repeat int) (rows []figures.Row, err error) {
	kits, err := os.MkdirTemp("", "reknit-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(kits)) }()
	options := provision.Options{Dir: kits, Institution: institution, Nodes: []string{giver, taker}}
	if err := provision.Security(options); err != nil {
		return nil, err
	}
	identity, err := mtls.Open(kitOf(kits, taker))
	if err != nil {
		return nil, err
	}
	there, err := bus.ReadIdentity(kitOf(kits, giver))
	if err != nil {
		return nil, err
	}
	o, err := start(size, memory, kits)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.stop()) }()
	b := &bench{other: o, data: content(size), into: make([]byte, size)}
	plain := shards.Source{Name: giver, URL: o.Store, Bucket: storeBucket}
	over := shards.Source{Name: giver, URL: o.Secured, Bucket: storeBucket, Options: func() []nats.Option { return identity.Options(there.Key) }}
	ways := []*way{
		{name: "over TLS", move: func(ctx context.Context) error { return b.getFrom(ctx, over) }},
		{name: "in plain text", move: func(ctx context.Context) error { return b.getFrom(ctx, plain) }, baseline: true},
	}
	for turn := range repeat * len(ways) {
		w := ways[(turn+turn/len(ways))%len(ways)]
		if err := b.once(ctx, w); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	kind := map[bool]string{false: "file", true: "memory"}[memory]
	return b.rows(fmt.Sprintf("get %d MiB %s", size>>20, kind), ways, 0), nil
}
