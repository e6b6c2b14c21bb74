package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/tests/invariants"
	"github.com/reknit/reknit/tests/observer"
)

// outcome is how a run ended.
type outcome struct {
	faults       []fault
	verdict      observer.Verdict
	acknowledged int      // events of the ledger
	lost         int      // of them, and of those heard of the cluster, that the log does not hold
	mistaken     []string // for dead, though nobody struck them
	needless     []string // leases taken from a copy that nobody struck
}

// judge waits until all train again and have told digests of one step, and compares with the oracle and the log.
func judge(ctx context.Context, c *chaos, finish func()) (result outcome, err error) {
	result.faults = c.faults
	if err := c.observer.Wait(ctx, healLimit, "all trainers to train at the end", trains); err != nil {
		return result, fmt.Errorf("%w; held: %q", err, c.observer.Scene().Held)
	}
	healed := c.observer.Scene().Steps
	var scene observer.Scene
	if err := c.observer.Wait(ctx, healLimit, "the digests of all", func(s observer.Scene) bool {
		shown := s.Compared() > healed
		if shown {
			scene = s.Clone()
		}
		return shown
	}); err != nil {
		return result, err
	}
	heard := c.observer.Log()
	finish()
	for i := range trainers { // they need not train while the oracle does
		_ = c.processes.Kill(trainerName(i))
	}
	if err := result.count(ctx, c, heard); err != nil {
		return result, err
	}
	config, err := c.trainer()
	if err != nil {
		return result, err
	}
	if result.verdict, err = c.observer.Judge(config, scene); err != nil {
		return result, err
	}
	return result, result.verdict.Err()
}

// count looks for what was lost, and for what was mistaken for a death.
func (o *outcome) count(ctx context.Context, c *chaos, heard []byte) error {
	ctx, cancel := context.WithTimeout(ctx, healLimit)
	defer cancel()
	held, err := c.ledger.held(ctx)
	if err != nil {
		return err
	}
	lost := c.ledger.lost(held)
	gone, err := forgotten(ctx, c.bus, heard)
	if err != nil {
		return err
	}
	o.acknowledged, o.lost = len(c.ledger.written), lost+gone
	log, err := invariants.Read(bytes.NewReader(heard))
	if err != nil {
		return err
	}
	holders := map[string]string{}
	for _, entry := range log.Events {
		switch payload := entry.Payload.(type) {
		case *events.NodeState:
			if entry.Kind == events.NodeLost && !o.struck(payload.Node, entry.Logged) {
				o.mistaken = append(o.mistaken, payload.Node+": "+payload.Reason+", "+o.during(entry.Logged))
			}
		case *events.Lease:
			before := holders[payload.Service]
			holders[payload.Service] = payload.Instance
			if before != "" && before != payload.Instance && !o.struck(payload.Service, entry.Logged) {
				o.needless = append(o.needless, payload.Service+", "+o.during(entry.Logged))
			}
		}
	}
	return nil
}

// shows is for how long after its end a fault may show: a cut connection is noticed late.
const shows = 15 * time.Second

// struck reports whether a trainer, or the copy of a service that acted, was a victim at a moment or shortly before.
func (o *outcome) struck(name string, at time.Time) bool {
	return slices.ContainsFunc(o.faults, func(f fault) bool {
		victim := f.victim == name || f.role == "acting" && strings.HasPrefix(f.victim, name+"-")
		return victim && at.After(f.began.Add(-time.Second)) && at.Before(f.ended.Add(shows))
	})
}

// during names the fault of a server at a moment.
func (o *outcome) during(at time.Time) string {
	for _, f := range slices.Backward(o.faults) {
		if strings.HasPrefix(f.victim, "nats") && at.After(f.began) && at.Before(f.ended.Add(shows)) {
			return fmt.Sprintf("%s, %.1f s after %s (%s) was %s", at.Format("15:04:05"), at.Sub(f.began).Seconds(), f.victim,
				f.role, f.kind)
		}
	}
	return at.Format("15:04:05") + ", no server was struck"
}

// conclude prints the figures, and fails where something that must not happen did.
func (o *outcome) conclude() error {
	for _, kind := range []string{"killed", "paused", "cut", "upgraded"} {
		for _, role := range []string{"leader", "follower", "acting", "standby", processes.Trainer} {
			o.tell(kind, role)
		}
	}
	fmt.Printf("%d events of the ledger acknowledged, %d of all lost; %d events, %d plans, %d violations\n", o.acknowledged,
		o.lost, o.verdict.Events, o.verdict.Plans, len(o.verdict.Violations))
	list("trainers mistaken for dead", o.mistaken)
	list("leases taken from a copy that was not struck", o.needless)
	if o.verdict.Digest != "" && o.verdict.Digest == o.verdict.Oracle {
		fmt.Println("equal digests")
	}
	if o.lost > 0 {
		return fmt.Errorf("%d acknowledged events are lost", o.lost)
	}
	return nil
}

// tell prints how often a fault struck, and for how long nobody acted: while the servers were whole, and while one of
// them was away as well.
func (o *outcome) tell(kind, role string) {
	count := 0
	var alone, together []time.Duration
	for _, f := range o.faults {
		if f.kind != kind || f.role != role {
			continue
		}
		count++
		switch {
		case f.absence < 0:
		case role != "leader" && o.serverAway(f):
			together = append(together, f.absence)
		default:
			alone = append(alone, f.absence)
		}
	}
	if count == 0 {
		return
	}
	fmt.Printf("%-8s %-6s %3d times%s", role, kind, count, quantiles("", alone))
	fmt.Println(quantiles(" (with a server away)", together))
}

// settles is how long clients and followers of a server that is back take to be as before.
const settles = 5 * time.Second

// serverAway reports whether a server was away while nobody acted for a victim.
func (o *outcome) serverAway(f fault) bool {
	return slices.ContainsFunc(o.faults, func(server fault) bool {
		return strings.HasPrefix(server.victim, "nats") && server.began.Before(f.began.Add(f.absence)) &&
			server.ended.Add(settles).After(f.began)
	})
}

func list(what string, all []string) {
	fmt.Printf("%d %s\n", len(all), what)
	for _, one := range all {
		fmt.Println("  " + one)
	}
}

func quantiles(when string, all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	slices.SortFunc(all, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	return fmt.Sprintf("; nobody acted%s for %.2f s p50, %.2f s at most of %d", when, all[(len(all)-1)/2].Seconds(),
		all[len(all)-1].Seconds(), len(all))
}
