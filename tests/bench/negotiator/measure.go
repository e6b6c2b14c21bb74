package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/tests/bench/figures"
)

// cost is what all changes of one kind took and cost, at one size.
type cost struct {
	change change
	times  []time.Duration
	events uint64
	bytes  uint64   // of these
	apart  uint64   // bytes of plans, and of what is too large for an event
	cpu    float64  // seconds of the services
	own    float64  // of all trainers together, which are in this process
	broker float64  // seconds of the server
	line   timeline // nil: who has a kit may not read the log so
}

// result is what was measured at one size.
type result struct {
	nodes    int
	formed   time.Duration
	floor    floor
	costs    []*cost // in the order of changes, each kind once
	herds    []*herd
	uses     map[string]use // until services are killed
	restarts []restart
	mistaken int   // living nodes that were said lost
	failed   error // what did not end; the rest was measured before it
}

// bench says what is measured.
type bench struct {
	programs string // directory of reknit and reknit-nats
	servers  int
	trials   int // of each kind of change
}

// measure forms a cluster on a new control plane and has it change so many times in each way. Then one node of 64 falls
// silent, all of these at once, and as many join. At last each service is killed.
func (b bench) measure(ctx context.Context, nodes int) (*result, error) {
	r := &result{nodes: nodes}
	return r, b.with(ctx, nodes, nodes, func(ctx context.Context, p *plane, f *fleet) (err error) {
		if r.formed, r.failed = f.form(ctx, nodes); r.failed == nil {
			r.failed = r.run(ctx, p, f, b.trials)
		}
		if several := nodes / 64; r.failed == nil && several > 1 {
			r.herds = append(r.herds, f.falls(ctx, several), f.joins(ctx, several))
		}
		if r.uses, err = p.uses(); err == nil && r.failed == nil {
			r.restarts, r.failed = f.restarts(ctx, p)
		}
		r.mistaken = f.mistakes()
		return err
	})
}

// join forms a cluster of a few nodes on a new control plane, and many join it at once.
func (b bench) join(ctx context.Context, few, many int) (h *herd, err error) {
	err = b.with(ctx, few, few+many, func(ctx context.Context, _ *plane, f *fleet) error {
		if _, err := f.form(ctx, few); err != nil {
			return err
		}
		h = f.joins(ctx, many)
		return nil
	})
	return h, err
}

// with does something with a new control plane, which makes its first plan for so many nodes, and with a fleet whose job
// is one of so many.
func (b bench) with(ctx context.Context, first, most int, do func(context.Context, *plane, *fleet) error) (err error) {
	directory, err := os.MkdirTemp("", "bench-negotiator-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	p, err := start(directory, b.programs, b.servers, first)
	if err != nil {
		return err
	}
	defer p.close()
	ctx, cancel := context.WithCancel(ctx)
	f, err := newFleet(ctx, p.url, most)
	if err != nil {
		cancel()
		return err
	}
	defer f.close()
	defer cancel() // before the connections are closed
	return do(ctx, p, f)
}

func (r *result) run(ctx context.Context, p *plane, f *fleet, trials int) error {
	kinds := map[string]*cost{}
	meter, err := newMeter(ctx, f.buses, r.nodes, trials)
	if err != nil {
		return err
	}
	defer func() { r.floor = meter.floor(); meter.close() }()
	for range trials {
		for _, change := range changes {
			c := kinds[change.name]
			if c == nil {
				c = &cost{change: change, line: timeline{}}
				kinds[change.name] = c
				r.costs = append(r.costs, c)
			}
			if err := c.add(ctx, p, f); err != nil {
				return fmt.Errorf("%s: %w", change.name, err)
			}
		}
		if err := meter.measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// add makes the change once more.
func (c *cost) add(ctx context.Context, p *plane, f *fleet) error {
	time.Sleep(c.change.calm)
	before, err := f.settled(ctx)
	if err != nil {
		return err
	}
	used, err := p.uses()
	if err != nil {
		return err
	}
	spent := figures.Spent()
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
	if c.line != nil {
		if err := c.line.note(ctx, f, before.last+1); err != nil {
			return err
		}
	}
	c.times, c.own = append(c.times, took), c.own+(figures.Spent()-spent).Seconds()
	c.events += after.count - before.count
	c.bytes += after.bytes - before.bytes
	c.apart += after.apart - before.apart
	for _, service := range processes.Services {
		c.cpu += now[service].seconds - used[service].seconds
	}
	c.broker += now[broker].seconds - used[broker].seconds
	return nil
}

// held is how much is in the log, and in the streams of plans and payloads.
type held struct{ count, bytes, apart, last uint64 }

// The log counts as settled when little was said for so long: the monitor has something to say about links at any time,
// and the more the more nodes there are.
const (
	settleTime  = 300 * time.Millisecond
	settleLimit = 30 * time.Second
	trickle     = 8
)

// settled waits until hardly anything is said any more, and returns how much is held.
func (f *fleet) settled(ctx context.Context) (held, error) {
	var before held
	for began := time.Now(); ; time.Sleep(settleTime) {
		now, err := f.held(ctx)
		if err != nil {
			return held{}, err
		}
		if now.count-before.count <= uint64(trickle+f.nodes/64) || time.Since(began) > settleLimit {
			return now, nil
		}
		before = now
	}
}

func (f *fleet) held(ctx context.Context) (h held, err error) {
	for _, sort := range []string{events.EventStream.Name, events.PlanStream.Name, events.PayloadBucket, events.PlanPayloadBucket} {
		name := events.Lane(cluster, sort)
		if sort == events.PayloadBucket || sort == events.PlanPayloadBucket {
			name = "OBJ_" + name
		}
		stream, err := f.buses[0].JetStream().Stream(ctx, name)
		if err != nil {
			return h, err
		}
		if state := stream.CachedInfo().State; sort == events.EventStream.Name {
			h.count, h.bytes, h.last = state.Msgs, state.Bytes, state.LastSeq
		} else {
			h.apart += state.Bytes
		}
	}
	return h, nil
}
