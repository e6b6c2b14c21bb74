package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
)

// cost is what all changes of one kind took and cost, at one size.
type cost struct {
	change change
	times  []time.Duration
	events uint64
	bytes  uint64  // of these
	cpu    float64 // seconds of the services
	broker float64 // seconds of the server
}

// result is what was measured at one size.
type result struct {
	nodes  int
	formed time.Duration
	floor  floor
	costs  []*cost // in the order of changes, each kind once
	uses   map[string]use
	failed error // what did not end; the rest was measured before it
}

// measure forms a cluster on a new control plane and has it change so many times in each way.
func measure(ctx context.Context, programs string, nodes, trials int) (r *result, err error) {
	directory, err := os.MkdirTemp("", "bench-negotiator-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	p, err := start(directory, programs, nodes)
	if err != nil {
		return nil, err
	}
	defer p.close()
	ctx, cancel := context.WithCancel(ctx)
	f, err := newFleet(ctx, p.url, nodes)
	if err != nil {
		cancel()
		return nil, err
	}
	defer f.close()
	defer cancel() // before the connections are closed
	r = &result{nodes: nodes}
	if r.formed, r.failed = f.form(ctx); r.failed == nil {
		r.failed = r.run(ctx, p, f, trials)
	}
	r.uses, err = p.uses()
	return r, err
}

func (r *result) run(ctx context.Context, p *plane, f *fleet, trials int) (err error) {
	kinds := map[string]*cost{}
	for range trials {
		for _, change := range changes {
			c := kinds[change.name]
			if c == nil {
				c = &cost{change: change}
				kinds[change.name] = c
				r.costs = append(r.costs, c)
			}
			if err := c.add(ctx, p, f); err != nil {
				return fmt.Errorf("%s: %w", change.name, err)
			}
		}
	}
	r.floor, err = measureFloor(ctx, f.buses, r.nodes)
	return err
}

// add makes the change once more.
func (c *cost) add(ctx context.Context, p *plane, f *fleet) error {
	before, err := f.settled(ctx)
	if err != nil {
		return err
	}
	used, err := p.uses()
	if err != nil {
		return err
	}
	took, err := f.play(ctx, c.change)
	if err != nil {
		return err
	}
	after, err := f.settled(ctx)
	if err != nil {
		return err
	}
	now, err := p.uses()
	if err != nil {
		return err
	}
	c.times = append(c.times, took)
	c.events += after.count - before.count
	c.bytes += after.bytes - before.bytes
	for _, service := range processes.Services {
		c.cpu += now[service].seconds - used[service].seconds
	}
	c.broker += now[broker].seconds - used[broker].seconds
	return nil
}

// held is how much is in the log.
type held struct{ count, bytes uint64 }

// The log counts as settled when little was said for so long: the monitor has something to say about links at any time.
const (
	settleTime  = 300 * time.Millisecond
	settleLimit = 30 * time.Second
	trickle     = 8
)

// settled waits until hardly anything is said any more, and returns how much is in the log.
func (f *fleet) settled(ctx context.Context) (held, error) {
	var before held
	for began := time.Now(); ; time.Sleep(settleTime) {
		stream, err := f.buses[0].JetStream().Stream(ctx, events.EventStream.Name)
		if err != nil {
			return held{}, err
		}
		state := stream.CachedInfo().State
		now := held{state.Msgs, state.Bytes}
		if now.count-before.count <= trickle || time.Since(began) > settleLimit {
			return now, nil
		}
		before = now
	}
}
