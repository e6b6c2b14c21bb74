package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reknit/reknit/tests/observer"
)

// sign is something the cluster shows after a death that it did not show before. Name is that of a service or of a node.
type sign struct {
	what  string
	shown func(name string, before, now observer.Scene) bool
}

var (
	goesOn = sign{"five more steps", func(_ string, before, now observer.Scene) bool {
		return now.Steps >= before.Steps+5
	}}
	isReplaced = sign{"plan without it", func(node string, before, now observer.Scene) bool {
		return now.Incarnation(node) != before.Incarnation(node)
	}}
	isPlanned = sign{"plan with its new process", func(node string, before, now observer.Scene) bool {
		return now.Incarnation(node) != "" && isReplaced.shown(node, before, now)
	}}
	takesLease = sign{"lease taken", func(service string, before, now observer.Scene) bool {
		return now.Leases[service] > before.Leases[service]
	}}
)

// fault is the death of a container, and the signs that the cluster lives without it and that it is back.
type fault struct {
	service string // in the compose file; empty for the server that leads the log
	alone   *sign  // nil where nothing can be seen: there is no log without its only server
	back    sign
}

// single is where each service and NATS have one container.
var single = []fault{
	{"n2", &isReplaced, isPlanned},
	{"monitor", &goesOn, takesLease},
	{"negotiator", &goesOn, takesLease},
	{"planner", &goesOn, takesLease},
	{"restorer", &goesOn, takesLease},
	{"nats", nil, goesOn},
}

// cluster is where the log is on three servers, and the other copy of a service takes over. A trainer comes last: its new plan
// takes all four services and the log.
var cluster = []fault{
	{"", &goesOn, goesOn},
	{"monitor", &takesLease, goesOn},
	{"negotiator", &takesLease, goesOn},
	{"planner", &takesLease, goesOn},
	{"restorer", &takesLease, goesOn},
	{"n2", &isReplaced, isPlanned},
}

// site is where some trainers know nothing but a server of their own.
var site = fault{"nats-site", &goesOn, goesOn}

// play kills the container in the middle of training and starts it again: docker does not restart what its own kill
// command ended.
func (f fault) play(ctx context.Context, d *deployment) error {
	name := f.service
	if name == "" {
		var err error
		if name, err = d.leader(ctx); err != nil {
			return err
		}
	}
	id, err := d.acting(ctx, name)
	if err != nil {
		return err
	}
	if err := d.await(ctx, goesOn, "", d.observer.Scene(), time.Now()); err != nil {
		return err
	}
	before, killed := d.observer.Scene(), time.Now()
	if err := docker(ctx, "kill", id); err != nil {
		return err
	}
	fmt.Printf("%-10s killed after step %d", name, before.Steps)
	if err := f.alive(ctx, d, name, before, killed); err != nil {
		return err
	}
	started := time.Now()
	if err := docker(ctx, "start", id); err != nil {
		return err
	}
	fmt.Print("; started")
	defer fmt.Println()
	return d.await(ctx, f.back, name, before, started)
}

// alive waits until the cluster has shown that it lives without the container.
func (f fault) alive(ctx context.Context, d *deployment, name string, before observer.Scene, killed time.Time) error {
	if f.service == "" {
		if err := until(ctx, "another leader of the log", func() bool {
			leader, err := d.leader(ctx)
			return err == nil && leader != name
		}); err != nil {
			return err
		}
		fmt.Printf("; another leads after %.1f s", time.Since(killed).Seconds())
		before = d.observer.Scene()
	}
	if f.alone == nil {
		return nil
	}
	return d.await(ctx, *f.alone, name, before, killed)
}

// await waits for a sign and prints how long it took from start; not where nobody is named.
func (d *deployment) await(ctx context.Context, expected sign, name string, before observer.Scene, start time.Time) error {
	node, err := d.node(name)
	if err != nil {
		node = name // no trainer's
	}
	err = d.observer.Wait(ctx, waitLimit, expected.what, func(now observer.Scene) bool { return expected.shown(node, before, now) })
	if err == nil && name != "" {
		fmt.Printf("; %s after %.1f s", expected.what, time.Since(start).Seconds())
	}
	return err
}
