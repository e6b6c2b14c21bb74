package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reknit/reknit/tests/observer"
)

// sign is something the cluster shows after a death that it did not show before.
type sign struct {
	what  string
	shown func(service string, before, now observer.Scene) bool
}

var (
	goesOn = sign{"five more steps", func(_ string, before, now observer.Scene) bool {
		return now.Steps >= before.Steps+5
	}}
	isReplaced = sign{"plan without it", func(service string, before, now observer.Scene) bool {
		return now.Incarnation(service) != before.Incarnation(service)
	}}
	isPlanned = sign{"plan with its new process", func(service string, before, now observer.Scene) bool {
		return now.Incarnation(service) != "" && isReplaced.shown(service, before, now)
	}}
	takesLease = sign{"lease taken", func(service string, before, now observer.Scene) bool {
		return now.Leases[service] > before.Leases[service]
	}}
)

// fault is the death of a container, and the signs that the cluster lives without it and that it is back.
type fault struct {
	service string // in the compose file
	alone   *sign  // nil where nothing can be seen: there is no log without NATS
	back    sign
}

var faults = []fault{
	{"n2", &isReplaced, isPlanned},
	{"monitor", &goesOn, takesLease},
	{"negotiator", &goesOn, takesLease},
	{"planner", &goesOn, takesLease},
	{"restorer", &goesOn, takesLease},
	{"nats", nil, goesOn},
}

// play kills the container in the middle of training and starts it again: docker does not restart what its own kill
// command ended.
func (f fault) play(ctx context.Context, d *deployment) error {
	id, err := d.container(ctx, f.service)
	if err != nil {
		return err
	}
	if _, err := f.await(ctx, d, goesOn, d.observer.Scene(), time.Now()); err != nil {
		return err
	}
	before, killed := d.observer.Scene(), time.Now()
	if err := docker(ctx, "kill", id); err != nil {
		return err
	}
	fmt.Printf("%-10s killed after step %d", f.service, before.Steps)
	if f.alone != nil {
		seconds, err := f.await(ctx, d, *f.alone, before, killed)
		if err != nil {
			return err
		}
		fmt.Printf("; %s after %.1f s", f.alone.what, seconds)
	}
	started := time.Now()
	if err := docker(ctx, "start", id); err != nil {
		return err
	}
	seconds, err := f.await(ctx, d, f.back, before, started)
	if err == nil {
		fmt.Printf("; started: %s after %.1f s\n", f.back.what, seconds)
	}
	return err
}

// await waits for a sign and returns how long it took from start.
func (f fault) await(
	ctx context.Context, d *deployment, expected sign, before observer.Scene, start time.Time,
) (seconds float64, err error) {
	err = d.observer.Wait(ctx, waitLimit, expected.what,
		func(now observer.Scene) bool { return expected.shown(f.service, before, now) })
	return time.Since(start).Seconds(), err
}
