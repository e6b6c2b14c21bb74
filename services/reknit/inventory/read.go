// Package inventory tells what there is of a cluster now: nodes, links, services, the plan in force and how training gets
// on. Facts come from the log, and what is never stored from heartbeats that it listens to.
package inventory

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/shared/bus"
)

// listening is how long heartbeats are listened to: two periods, and what a busy node is late by.
const listening = 1200 * time.Millisecond

// Pulses returns the last heartbeat of each node that sends one while it listens.
func Pulses(ctx context.Context, b *bus.Bus) (map[string]events.Pulse, error) {
	if err := connect.MayListen(b); err != nil {
		return nil, err
	}
	heard := make(chan *nats.Msg, 4096)
	subscription, err := b.Conn().ChanSubscribe(events.PulseSubject(b.Cluster(), "*"), heard)
	if err != nil {
		return nil, err
	}
	defer subscription.Unsubscribe()
	last, ends := map[string]events.Pulse{}, time.After(listening)
	for {
		select {
		case message := <-heard:
			var pulse events.Pulse
			if events.Decode(message.Data, &pulse) == nil && message.Subject == events.PulseSubject(b.Cluster(), pulse.Node) {
				last[pulse.Node] = pulse
			}
		case <-ends:
			return last, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look returns what the log tells of nodes, and the last heartbeat of each, which it listens to meanwhile.
func look(ctx context.Context, b *bus.Bus) (known *overlay.Overlay, heard map[string]events.Pulse, err error) {
	var asked errgroup.Group
	asked.Go(func() (err error) { heard, err = Pulses(ctx, b); return err })
	asked.Go(func() (err error) { known, err = read(ctx, b); return err })
	err = asked.Wait()
	return known, heard, err
}

// Trained is what was trained in a cluster, as the log and heartbeats tell.
type Trained struct {
	Step      uint64           // the highest that is told, in completed steps
	Missing   []string         // who is, of those who had a place, and why; by id
	Newest    overlay.Snapshot // complete one that outlives its processes; its step is 0 where there is none
	Unchanged bool             // its scripts keep their own state (--unchanged)
}

// TrainedIn returns what was trained. It listens to heartbeats for a second.
func TrainedIn(ctx context.Context, b *bus.Bus) (Trained, error) {
	known, heard, err := look(ctx, b)
	if err != nil {
		return Trained{}, err
	}
	nodes := known.Nodes(heard)
	trained := Trained{Missing: missing(nodes), Newest: overlay.NewestOf(known.Snapshots()), Unchanged: known.Stepless()}
	for _, node := range nodes {
		trained.Step = max(trained.Step, node.Step)
	}
	return trained, nil
}

// read returns what the log tells of nodes.
func read(ctx context.Context, b *bus.Bus) (*overlay.Overlay, error) {
	known := overlay.New()
	last, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), "*"))
	if err != nil {
		return nil, err
	}
	if found {
		known.Take(last)
	}
	if _, err := takeRequest(ctx, b, known); err != nil {
		return nil, err
	}
	return known, connect.Read(ctx, b, slices.Concat(overlay.NodeKinds, overlay.SnapshotKinds), connect.Span{}, known.Take)
}

// takeRequest has an overlay take the last request for a plan, which lists devices and links, and returns its place in the log.
func takeRequest(ctx context.Context, b *bus.Bus, known *overlay.Overlay) (sequence uint64, err error) {
	last, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), events.PlanRequested, "*"))
	if found {
		known.Take(last)
	}
	return last.Sequence, err
}
