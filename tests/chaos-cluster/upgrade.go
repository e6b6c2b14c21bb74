package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/tests/observer"
)

// install has links in a directory stand for a build's programs, as on a host whose programs are exchanged while they run.
func install(build programs, directory string) (programs, error) {
	links := programsIn(directory)
	return links, errors.Join(link(build.reknit, links.reknit), link(build.nats, links.nats))
}

// link has a name stand for a program, from one moment to the next.
func link(program, name string) error {
	target, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	if err := os.Symlink(target, name+".next"); err != nil {
		return err
	}
	return os.Rename(name+".next", name)
}

// upgrade exchanges the programs, and then has one process after the other end in peace and start anew: each copy of each
// service, each server, each trainer. The next follows when all is whole and training has gone on.
func (c *chaos) upgrade(ctx context.Context, build programs, directory string) error {
	if _, err := install(build, directory); err != nil {
		return err
	}
	for _, service := range processes.Services {
		for i := range copies {
			if err := c.upgradeCopy(ctx, service, copyName(service, i)); err != nil {
				return err
			}
		}
	}
	for i := range serverCount {
		if err := c.upgradeServer(ctx, i); err != nil {
			return err
		}
	}
	for i := range trainers {
		name := trainerName(i)
		struck := fault{victim: name, role: processes.Trainer, absence: -1}
		if err := c.exchange(ctx, &struck, c.processes, func() error { return c.start(name) }); err != nil {
			return err
		}
		c.note(struck)
		if err := c.goesOn(ctx); err != nil {
			return err
		}
	}
	return c.losses()
}

func (c *chaos) upgradeCopy(ctx context.Context, service, name string) error {
	struck := fault{victim: name, role: "standby", absence: -1}
	if c.ready(name) {
		struck.role = "acting"
	}
	if err := c.exchange(ctx, &struck, c.processes, func() error { return c.start(name) }); err != nil {
		return err
	}
	if struck.role == "acting" {
		struck.absence = c.absence(ctx, struck.began, service)
	}
	c.note(struck)
	return c.goesOn(ctx)
}

func (c *chaos) upgradeServer(ctx context.Context, server int) error {
	js := c.bus.JetStream()
	struck := fault{victim: serverName(server), role: "follower", absence: -1}
	if c.servers.leader(ctx, js, c.ledger.bus.Lane(events.EventStream.Name)) == server {
		struck.role = "leader"
	}
	if err := c.exchange(ctx, &struck, c.servers.processes, func() error { return c.servers.start(server) }); err != nil {
		return err
	}
	if struck.role == "leader" {
		struck.absence = c.ledger.absence(ctx, struck.began)
	}
	c.note(struck)
	if err := eventually(ctx, "streams whole again", func() bool { return c.servers.whole(ctx, js) }); err != nil {
		return err
	}
	return c.goesOn(ctx)
}

// exchange asks a process to end, waits until it has, and starts it again.
func (c *chaos) exchange(ctx context.Context, struck *fault, running *processes.Supervisor, start func() error) error {
	struck.kind, struck.began = "upgraded", time.Now()
	if err := running.Signal(struck.victim, syscall.SIGTERM); err != nil {
		return err
	}
	if err := eventually(ctx, "the end of "+struck.victim, func() bool {
		_, err := running.Pid(struck.victim)
		return err != nil
	}); err != nil {
		return err
	}
	struck.ended = time.Now()
	if err := start(); err != nil {
		return fmt.Errorf("%s: %w", struck.victim, err)
	}
	return nil
}

// goesOn waits until every service acts, and all trainers have a place and have trained further.
func (c *chaos) goesOn(ctx context.Context) error {
	for _, service := range processes.Services {
		if err := eventually(ctx, service+" to act", func() bool { _, acts := c.acting(service); return acts }); err != nil {
			return err
		}
	}
	before := c.observer.Scene().Steps
	err := c.observer.Wait(ctx, healLimit, "all trainers to train on", func(s observer.Scene) bool {
		return trains(s) && s.Steps > before
	})
	if err != nil {
		return fmt.Errorf("%w; held: %q", err, c.observer.Scene().Held)
	}
	return c.losses()
}
