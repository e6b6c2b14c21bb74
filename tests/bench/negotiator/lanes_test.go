package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

var programs = flag.String("lanes", "", "directory of reknit and reknit-nats: measure what a flood in one cluster does to another")

const (
	laneNodes  = 6
	laneTrials = 60 // changes of each row
	flooders   = 6
	inFlight   = 32 // of each: it waits for as many acknowledgements at once
)

// One cluster of a server makes changes while another says as much as its members may, each cluster in a log of its own.
// The last row floods the log of the one that makes changes, as it was when all clusters shared one.
func TestAFloodInOneClusterBesideAnother(t *testing.T) {
	if *programs == "" {
		t.Skip("skipped: it measures; give it -lanes=../../../bin after make build")
	}
	directory, err := filepath.Abs(*programs)
	if err != nil {
		t.Fatal(err)
	}
	b := bench{trials: 1, servers: 1, programs: directory}
	if err := b.with(t.Context(), laneNodes, laneNodes+2, func(ctx context.Context, p *plane, f *fleet) error {
		if _, err := f.form(ctx, laneNodes); err != nil {
			return err
		}
		for _, row := range []struct{ what, floods string }{
			{"alone", ""}, {"another cluster floods its own log", "another"}, {"alone", ""}, {"a flood in the same log", cluster},
		} {
			p50, rate, err := underFlood(ctx, p.url, f, row.floods)
			if err != nil {
				return fmt.Errorf("%s: %w", row.what, err)
			}
			t.Logf("%-36s p50 %v, with %.0f events a second beside it", row.what, p50, rate)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// underFlood makes changes while a cluster floods its log; none: nobody does.
func underFlood(ctx context.Context, url string, f *fleet, floods string) (p50 time.Duration, rate float64, err error) {
	flooding, end := context.WithCancel(ctx)
	var flood sync.WaitGroup
	defer flood.Wait()
	defer end()
	var said atomic.Int64
	if floods != "" {
		b, err := bus.Connect(ctx, bus.Config{URL: url, Name: "flood", Cluster: floods})
		if err != nil {
			return 0, 0, err
		}
		if err := b.Provision(ctx); err != nil {
			return 0, 0, err
		}
		for node := range flooders {
			for place := range inFlight {
				flood.Go(func() { say(flooding, b, fmt.Sprint("f", node), place, &said) })
			}
		}
	}
	began := time.Now()
	var times []time.Duration
	for i := range laneTrials {
		took, err := f.play(ctx, changes[2+i%2]) // disconnect and connect
		if err != nil {
			return 0, 0, err
		}
		times = append(times, took)
	}
	slices.Sort(times)
	return quantile(times, 0.5), float64(said.Load()) / time.Since(began).Seconds(), nil
}

// say says one event after the other, of a kind that neither services nor the fleet hear, until ctx ends.
func say(ctx context.Context, b *bus.Bus, node string, place int, said *atomic.Int64) {
	speaker := events.Speaker{Source: "/negotiator", Cluster: b.Cluster()}
	for number := 0; ctx.Err() == nil; number++ {
		delay := &events.LeaveDelay{Node: node, Incarnation: "i", Seconds: 2, DeadlineSeconds: 1, Reason: "flood"}
		event := speaker.First(time.Now(), fmt.Sprint(place, " ", number), events.LeaveDelayed, node, delay)
		if _, err := b.Publish(ctx, event); err == nil {
			said.Add(1)
		}
	}
}
