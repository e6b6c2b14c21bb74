// Package inventory tells what there is of a cluster now: nodes, links, services, the plan in force and how training gets
// on. Facts come from the log, and what is never stored from heartbeats that it listens to.
package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/shared/bus"
)

// Node is a node of a cluster.
type Node struct {
	Node        string        `json:"node"`
	State       string        `json:"state"`            // one of the constants
	Reason      string        `json:"reason,omitempty"` // of the state, as it was said
	Site        string        `json:"site,omitempty"`
	Address     string        `json:"address"`
	Incarnation string        `json:"incarnation"`
	Pipeline    *int          `json:"pipeline,omitempty"` // left out where it has no place
	Stage       *int          `json:"stage,omitempty"`
	Layers      *events.Range `json:"layers,omitempty"`
	MemoryBytes int64         `json:"memoryBytes,omitempty"`
	PeakBytes   int64         `json:"peakBytes,omitempty"` // that the plan fills
	SpeedFactor float64       `json:"speedFactor,omitempty"`
	// Pulse is its last heartbeat; left out where it sent none while the command listened.
	Pulse *events.Pulse `json:"pulse,omitempty"`
}

// The states of a node.
const (
	Training  = "training"
	Spare     = "spare"     // active, without a place
	Joining   = "joining"   // it asked for a place and has none yet
	Leaving   = "leaving"   // it asked to go, or was drained, and is needed still
	Suspected = "suspected" // it may have failed
	Lost      = "lost"      // it has, and no plan is there without it yet
	Silent    = "silent"    // nothing says that it failed, and it sends no heartbeats
	Ended     = "ended"     // training is complete, or it was told to go
)

// told is what the log tells of a node, in the log's order.
type told struct {
	join                               *events.Join // the last
	leaving, suspected, lost, expected bool
	gone                               bool // it asked for a place and has none to wait for
	reason                             string
}

// nodeKinds are the events that change a node's state.
var nodeKinds = []events.Kind{
	events.JoinRequested, events.LeaveRequested, events.MembershipRefused, events.NodeSuspected, events.NodeCleared,
	events.NodeLost, events.NodeExited,
}

// take hears an event about the node.
func (n *told) take(event events.Event) {
	switch event.Kind {
	case events.JoinRequested:
		if join, err := events.Open[events.Join](event); err == nil {
			*n = told{join: &join}
		}
	case events.LeaveRequested:
		n.leaving, n.reason = true, reasonOf(event)
	case events.MembershipRefused:
		n.refuse(event)
	case events.NodeSuspected:
		n.suspected, n.reason = true, reasonOf(event)
	case events.NodeCleared:
		n.suspected, n.reason = false, ""
	case events.NodeLost:
		n.lost, n.gone, n.reason = true, true, reasonOf(event)
	case events.NodeExited:
		if exit, err := events.Open[events.Exit](event); err == nil {
			n.expected, n.gone, n.reason = exit.Expected, true, exit.Reason
		}
	}
}

func (n *told) refuse(event events.Event) {
	refusal, err := events.Open[events.Refusal](event)
	switch {
	case err != nil:
	case refusal.Refused == events.ChangeLeave:
		n.leaving = false
	case n.join != nil && refusal.Incarnation == n.join.Incarnation:
		n.gone, n.reason = true, refusal.Reason
	}
}

func reasonOf(event events.Event) string {
	var payload struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(event.Data, &payload) != nil {
		return ""
	}
	return payload.Reason
}

// listening is how long heartbeats are listened to: two periods, and what a busy node is late by.
const listening = 1200 * time.Millisecond

// pulses returns the last heartbeat of each node that sends one while it listens.
func pulses(ctx context.Context, b *bus.Bus) (map[string]events.Pulse, error) {
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

// known is what the log holds that nodes are made of.
type known struct {
	plan    *events.Plan
	planned time.Time // when the plan was committed
	devices map[string]events.Device
	told    map[string]*told
}

func read(ctx context.Context, b *bus.Bus) (known, error) {
	k := known{devices: map[string]events.Device{}, told: map[string]*told{}}
	last, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), "*"))
	if err != nil {
		return k, err
	}
	if found {
		plan, err := events.Open[events.Plan](last)
		if err != nil {
			return k, err
		}
		k.plan, k.planned = &plan, last.Logged
	}
	request, _, err := lastRequest(ctx, b)
	if err != nil {
		return k, err
	}
	for _, device := range request.Nodes {
		k.devices[device.Node] = device
	}
	return k, connect.Read(ctx, b, nodeKinds, connect.Span{}, func(event events.Event) {
		if k.told[event.Subject] == nil {
			k.told[event.Subject] = &told{}
		}
		k.told[event.Subject].take(event)
	})
}

// lastRequest returns the last request for a plan, which lists devices and links, and its place in the log.
func lastRequest(ctx context.Context, b *bus.Bus) (request events.PlanRequest, sequence uint64, err error) {
	last, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), events.PlanRequested, "*"))
	if err != nil || !found {
		return request, 0, err
	}
	request, err = events.Open[events.PlanRequest](last)
	return request, last.Sequence, err
}

// nodes lists the members of the plan and those who want to be.
func (k known) nodes(pulses map[string]events.Pulse) (all []Node) {
	if k.plan != nil {
		for _, member := range k.plan.Nodes {
			all = append(all, k.member(member, pulses))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.told)) {
		told := k.told[name]
		if told.join == nil || told.gone || told.leaving || k.isMember(name, told.join.Incarnation) {
			continue
		}
		node := Node{
			Node: name, State: Joining, Site: told.join.Site, Address: told.join.Address, Incarnation: told.join.Incarnation,
			MemoryBytes: told.join.MemoryBytes,
		}
		if pulse, heard := pulses[name]; heard {
			node.Pulse = &pulse
		}
		all = append(all, node)
	}
	slices.SortFunc(all, func(a, b Node) int { return cmp.Or(len(a.Node)-len(b.Node), cmp.Compare(a.Node, b.Node)) }) // n2 before n10
	return all
}

func (k known) isMember(name, incarnation string) bool {
	if k.plan == nil {
		return false
	}
	member, found := k.plan.Member(name)
	return found && member.Incarnation == incarnation
}

func (k known) member(member events.Member, pulses map[string]events.Pulse) Node {
	device := k.devices[member.Node]
	node := Node{
		Node: member.Node, State: Spare, Site: member.Site, Address: member.Address, Incarnation: member.Incarnation,
		MemoryBytes: device.MemoryBytes, SpeedFactor: device.SpeedFactor, PeakBytes: k.plan.Predicted.PeakBytes[member.Node],
	}
	for p, pipeline := range k.plan.Pipelines {
		for s, stage := range pipeline.Stages {
			if stage.Node == member.Node {
				node.State, node.Pipeline, node.Stage, node.Layers = Training, &p, &s, &stage.Layers
			}
		}
	}
	if pulse, heard := pulses[member.Node]; heard && pulse.Incarnation == member.Incarnation {
		node.Pulse = &pulse
	}
	k.judge(&node)
	return node
}

// judge changes the state of a member by what was said of it.
func (k known) judge(node *Node) {
	told := k.told[node.Node]
	isOf := told != nil && (told.join == nil || told.join.Incarnation == node.Incarnation) // the log may have dropped the join
	state := ""
	switch {
	case isOf && told.gone && told.expected:
		state = Ended
	case isOf && (told.lost || told.gone):
		state = Lost
	case isOf && told.suspected:
		state = Suspected
	case isOf && told.leaving:
		state = Leaving
	case node.Pulse == nil:
		node.State = Silent
	}
	if state != "" {
		node.State, node.Reason = state, told.reason
	}
}
