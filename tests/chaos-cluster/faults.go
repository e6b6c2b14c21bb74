package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/tests/proxies"
)

// fault is one that struck.
type fault struct {
	victim, kind string // kind: killed, paused or cut
	role         string // of the victim when it was struck: leader, follower, acting, standby or trainer
	began, ended time.Time
	absence      time.Duration // of the service that the victim acted for, or of the log that it led; negative: not measured
}

// chaos strikes a cluster until it is told to stop. One victim at a time is struck among the servers, in each of two pairs of services, and
// among the trainers. The next is struck only when all is whole: what two deaths at a time break is no fault of a single point.
type chaos struct {
	*cluster
	ledger *ledger
	mutex  sync.Mutex
	faults []fault
}

// Bounds of the pauses between two faults of one lane, and of how long a victim is away. Servers have longer pauses, so
// that copies are struck while all servers are there, too.
const (
	leastPause, mostPause = 2 * time.Second, 5 * time.Second
	leastWhole, mostWhole = 20 * time.Second, 40 * time.Second
	leastAway, mostAway   = 2 * time.Second, 10 * time.Second
)

// healLimit is far beyond what anything takes to be whole again.
const healLimit = 5 * time.Minute

// run strikes for a while, and returns when the last victim is back.
func (c *chaos) run(ctx context.Context, seed uint64, duration time.Duration) error {
	end := time.Now().Add(duration)
	lanes := []func(context.Context, *rand.Rand) error{
		c.strikeServer, c.strikeTrainer,
		func(ctx context.Context, random *rand.Rand) error {
			return c.strikeService(ctx, random, "monitor", "planner")
		},
		func(ctx context.Context, random *rand.Rand) error {
			return c.strikeService(ctx, random, "negotiator", "restorer")
		},
	}
	errs := make(chan error)
	for i, lane := range lanes {
		go func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			var err error
			for err == nil && time.Now().Before(end) && c.losses() == nil {
				if err = pause(ctx, between(random, leastPause, mostPause)); err == nil {
					err = lane(ctx, random)
				}
			}
			errs <- err
		}()
	}
	var all error
	for range lanes {
		all = errors.Join(all, <-errs)
	}
	return errors.Join(all, c.losses())
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

func (c *chaos) note(struck fault) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.faults = append(c.faults, struck)
	fmt.Println(struck)
}

func (f fault) String() string {
	line := fmt.Sprintf("%s %s (%s) %s for %.1f s", f.began.Format("15:04:05"), f.victim, f.role, f.kind,
		f.ended.Sub(f.began).Seconds())
	if f.absence >= 0 {
		line += fmt.Sprintf("; nobody acted for %.2f s", f.absence.Seconds())
	}
	return line
}

// strikeServer strikes one of the servers, every second time the leader of the ledger's log.
func (c *chaos) strikeServer(ctx context.Context, random *rand.Rand) error {
	js := c.bus.JetStream()
	err := eventually(ctx, "streams whole again", func() bool { return c.servers.whole(ctx, js) })
	if err == nil {
		err = pause(ctx, between(random, leastWhole, mostWhole))
	}
	if err != nil {
		return err
	}
	leader := c.servers.leader(ctx, js, c.ledger.bus.Lane(events.EventStream.Name))
	server, role := random.IntN(serverCount), "follower"
	if random.IntN(2) == 0 {
		server = leader
	}
	if server == leader {
		role = "leader"
	}
	struck := fault{victim: serverName(server), role: role, began: time.Now(), absence: -1}
	return c.away(ctx, random, &struck, victim{
		signal: func(signal syscall.Signal) error { return c.servers.signal(server, signal) },
		start:  func() error { return c.servers.start(server) },
		ways:   c.servers.between(server),
	}, func(ctx context.Context) {
		if role == "leader" {
			struck.absence = c.ledger.absence(ctx, struck.began)
		}
	})
}

// strikeService strikes a copy of one of some services: two times of three the one that acts.
func (c *chaos) strikeService(ctx context.Context, random *rand.Rand, services ...string) error {
	service := services[random.IntN(len(services))]
	var acting string
	if err := eventually(ctx, service+" ready again", func() (acts bool) {
		acting, acts = c.acting(service)
		return acts
	}); err != nil {
		return err
	}
	name, role := acting, "acting"
	other := copyName(service, 0)
	if other == acting {
		other = copyName(service, 1)
	}
	if random.IntN(3) == 0 {
		name, role = other, "standby"
	}
	struck := fault{victim: name, role: role, began: time.Now(), absence: -1}
	return c.away(ctx, random, &struck, c.victim(name), func(ctx context.Context) {
		if role == "acting" {
			struck.absence = c.absence(ctx, struck.began, service)
		}
	})
}

// absence waits until a copy of a service is ready: the other, or the victim that is back.
func (c *chaos) absence(ctx context.Context, since time.Time, service string) time.Duration {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan time.Duration, copies)
	for i := range copies {
		go func() {
			for ctx.Err() == nil {
				if c.ready(copyName(service, i)) {
					ready <- time.Since(since)
					return
				}
				_ = pause(ctx, 20*time.Millisecond)
			}
		}()
	}
	select {
	case absence := <-ready:
		return absence
	case <-ctx.Done():
		return -1
	}
}

// strikeTrainer strikes a trainer when all train.
func (c *chaos) strikeTrainer(ctx context.Context, random *rand.Rand) error {
	if err := c.observer.Wait(ctx, healLimit, "all trainers to train again", trains); err != nil {
		return fmt.Errorf("%w; held: %q", err, c.observer.Scene().Held)
	}
	name := trainerName(random.IntN(trainers))
	struck := fault{victim: name, role: processes.Trainer, began: time.Now(), absence: -1}
	return c.away(ctx, random, &struck, c.victim(name), nil)
}

// victim is how a process is taken away and brought back.
type victim struct {
	signal func(syscall.Signal) error
	start  func() error
	ways   []*proxies.Proxy
}

func (c *chaos) victim(name string) victim {
	return victim{
		signal: func(signal syscall.Signal) error { return c.processes.Signal(name, signal) },
		start:  func() error { return c.start(name) },
		ways:   c.doors[name],
	}
}

// away kills, pauses or cuts off a victim, has somebody look on, and brings it back.
func (c *chaos) away(
	ctx context.Context, random *rand.Rand, struck *fault, v victim, look func(context.Context),
) error {
	struck.kind = []string{"killed", "paused", "cut"}[random.IntN(3)]
	length := between(random, leastAway, mostAway)
	var gone, back func() error
	switch struck.kind {
	case "killed":
		gone, back = func() error { return v.signal(syscall.SIGKILL) }, v.start
	case "paused":
		gone = func() error { return v.signal(syscall.SIGSTOP) }
		back = func() error { return v.signal(syscall.SIGCONT) }
	case "cut":
		gone = func() error { return each(v.ways, (*proxies.Proxy).Cut) }
		back = func() error { return each(v.ways, (*proxies.Proxy).Mend) }
	}
	if err := gone(); err != nil {
		if strings.Contains(err.Error(), "does not run") {
			return nil // it is being started again
		}
		return err
	}
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		if look != nil {
			seen, cancel := context.WithTimeout(ctx, healLimit)
			defer cancel()
			look(seen)
		}
	}()
	waiting := pause(ctx, length)
	err := back()
	struck.ended = time.Now()
	<-looking
	c.note(*struck)
	return errors.Join(waiting, err)
}

func each(ways []*proxies.Proxy, do func(*proxies.Proxy)) error {
	for _, way := range ways {
		do(way)
	}
	return nil
}

// eventually waits until something holds.
func eventually(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	for !holds() {
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("expected %s within %v: %w", what, healLimit, err)
		}
	}
	return nil
}

func pause(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}
