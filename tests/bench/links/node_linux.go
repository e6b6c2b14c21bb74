package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/nodes"
)

// node is a process of the cluster in a namespace of its own: a trainer and its store, the one that joins, or the
// shared store. The bench calls its methods over standard input and output; it ends when they do.
type node struct {
	ctx      context.Context // of the process
	store    *shards.Store
	secured  *shards.Store // of the same parts
	identity *mtls.Identity
	training *training
}

// serveNode is the main function of a node.
func serveNode(name string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM) // meant for the bench, which ends us
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	identity, err := mtls.Open(kitOf(name))
	if err != nil {
		return err
	}
	identity.Admit(func(string) bool { return true }) // the bench has no plan
	store, err := serveStore(ctx, name, storePort, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	secured, err := serveStore(ctx, name, securedPort, identity)
	if err != nil {
		return err
	}
	defer secured.Close()
	if err := servePlain(ctx); err != nil {
		return err
	}
	return nodes.Serve(&node{ctx: ctx, store: store, secured: secured, identity: identity}, cancel)
}

// Hold makes the state and lends it from both stores, as an agent does, and answers with its parts.
func (n *node) Hold(state nodes.State, parts *[]shards.Part) (err error) {
	*parts, err = state.Hold(n.ctx, func(_ context.Context, digest string, part []byte) error {
		data := slices.Clone(part)
		n.store.Offer(digest, data)
		n.secured.Offer(digest, data)
		return nil
	})
	return err
}

// Job is pulls of parts of the state.
type Job struct {
	Parts []shards.Part
	Pulls []pull
	Plain []pour // in their place
	Hash  bool   // what comes over plain TCP
	Keep  bool   // store what comes
}

// Fetched is how a job went.
type Fetched struct {
	Seconds float64
	Twice   int64 // bytes that came although they were there
}

// Fetch connects to all sources of a job, and then runs its pulls at the same time.
func (n *node) Fetch(job Job, fetched *Fetched) (err error) {
	if len(job.Plain) > 0 {
		fetched.Seconds, err = n.takePlain(job.Plain, job.Hash)
		return err
	}
	state := make([]byte, job.Parts[len(job.Parts)-1].End)
	for i := 0; i < len(state); i += os.Getpagesize() {
		state[i] = 0 // the joiner has its memory before the clock starts
	}
	pulls, ctx := errgroup.WithContext(n.ctx)
	transfers := make([]*nodes.Transfer, len(job.Pulls))
	for i, pull := range job.Pulls {
		sources, err := n.dialled(pull.Sources)
		if err != nil {
			return err
		}
		if transfers[i], err = nodes.Connect(ctx, sources); err != nil {
			return err
		}
	}
	began := time.Now()
	for i, pull := range job.Pulls {
		pulls.Go(func() error { return transfers[i].Fetch(shards.Layer{Into: state, Parts: pull.of(job.Parts)}) })
	}
	if err := pulls.Wait(); err != nil {
		return err
	}
	if job.Keep {
		n.keep(job.Parts, state)
	}
	fetched.Seconds = time.Since(began).Seconds()
	for _, transfer := range transfers {
		fetched.Twice += transfer.Progress().Duplicate
	}
	return nil
}

// of picks the parts of a pull.
func (p pull) of(parts []shards.Part) []shards.Part {
	picked := make([]shards.Part, len(p.Parts))
	for i, part := range p.Parts {
		picked[i] = parts[part]
		for s, source := range p.Sources {
			switch {
			case p.Givers == nil:
			case p.Givers[i] == s:
				picked[i].Sources = append(picked[i].Sources, source.Bucket)
			default:
				picked[i].Spares = append(picked[i].Spares, source.Bucket)
			}
		}
	}
	return picked
}

func (n *node) keep(parts []shards.Part, state []byte) {
	for _, part := range parts {
		n.store.Offer(part.Digest, state[part.First:part.End])
	}
}

// Train starts the training loop of a node.
func (n *node) Train(struct{}, *struct{}) error {
	if n.training != nil {
		return errors.New("trains already")
	}
	n.training = train()
	return nil
}

// Rest ends the training loop.
func (n *node) Rest(_ struct{}, trained *Trained) error {
	if n.training == nil {
		return errors.New("does not train")
	}
	*trained = n.training.end()
	n.training = nil
	return nil
}
