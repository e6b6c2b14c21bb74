package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/reknit/reknit/events"
)

// herd is what it took until a plan did what many nodes wanted at once.
type herd struct {
	what        string
	nodes       int // that live afterwards
	took        time.Duration
	generations uint64
	events      uint64
	mistaken    int // living nodes that were said lost
	failed      error
}

// joins has many nodes ask to join at once.
func (f *fleet) joins(ctx context.Context, count int) *herd {
	h := &herd{what: fmt.Sprintf("%d join %d", count, len(f.placed()))}
	return f.await(ctx, h, func() {
		var said []saying
		for range count {
			t := f.create()
			said = append(said, saying{t, t.join(f.nodes)})
		}
		f.say(said)
	})
}

// falls has many nodes fall silent at once, as those of a rack do, spread over the plan.
func (f *fleet) falls(ctx context.Context, count int) *herd {
	placed := f.placed()
	h := &herd{what: fmt.Sprintf("%d of %d fall silent", count, len(placed))}
	return f.await(ctx, h, func() {
		for i := range count {
			f.fall(placed, i*len(placed)/count)
		}
	})
}

// fall has the trainer at a place among others fall silent. Those after it watch it.
func (f *fleet) fall(placed []*trainer, at int) {
	f.remove(placed[at])
	fallen := silence{node: placed[at].name, since: time.Now()}
	for next := 1; next <= watchers; next++ {
		fallen.watchers = append(fallen.watchers, placed[(at+next)%len(placed)].name)
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.silent = append(f.silent, fallen)
}

// await plays what happens, and waits for a plan of all who live then and of nobody else.
func (f *fleet) await(ctx context.Context, h *herd, happen func()) *herd {
	before, err := f.settled(ctx)
	if err != nil {
		h.failed = err
		return h
	}
	for len(f.plans) > 0 {
		<-f.plans
	}
	generation, mistaken, began := f.plan.Generation, f.mistakes(), time.Now()
	happen()
	at, err := f.commit(ctx, func(plan *events.Plan) bool {
		h.generations = plan.Generation - generation
		return f.isOfAll(plan)
	})
	h.took, h.failed, h.mistaken, h.nodes = at.Sub(began), err, f.mistakes()-mistaken, len(f.placed())
	if after, err := f.settled(ctx); err == nil {
		h.events = after.count - before.count
	}
	return h
}

// isOfAll reports whether the nodes of a plan are those that live.
func (f *fleet) isOfAll(plan *events.Plan) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, member := range plan.Nodes {
		if f.trainers[member.Node] == nil {
			return false
		}
	}
	return len(plan.Nodes) == len(f.trainers)
}

func printHerds(w io.Writer, herds []*herd) {
	if len(herds) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| at once | until a plan of all who live | generations | events | said lost though alive |")
	fmt.Fprintln(w, "|---|---|---|---|---|")
	for _, h := range herds {
		if h.failed != nil {
			fmt.Fprintf(w, "| %s | not ended: %v, after %d generations | | %d | %d |\n", h.what, h.failed, h.generations, h.events, h.mistaken)
			continue
		}
		fmt.Fprintf(w, "| %s | %s | %d | %d | %d |\n", h.what, milliseconds(h.took), h.generations, h.events, h.mistaken)
	}
}
