package main

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// trainer is a node that only speaks the protocol. It answers at once; no step is trained and no byte moves.
type trainer struct {
	name        string
	incarnation string
	speaker     events.Speaker
	bus         *bus.Bus // of many trainers
	beats       uint64
}

// Figures of each link, whatever two nodes it joins.
const (
	roundTripSeconds = 1e-3
	bytesPerSecond   = 1.25e9
	stepSeconds      = 0.1
)

func (t *trainer) join(nodes int) events.Event {
	return t.speaker.First(time.Now(), t.incarnation, events.JoinRequested, t.name, &events.Join{
		Node: t.name, Incarnation: t.incarnation, Address: "127.0.0.1:1", MemoryBytes: memoryBytes(nodes), Job: job(nodes),
	})
}

func (t *trainer) leave() events.Event {
	return t.speaker.First(time.Now(), t.incarnation, events.LeaveRequested, t.name, &events.Leave{Node: t.name, Reason: "bench"})
}

// die is what the agent beside a trainer says when that is killed.
func (t *trainer) die(generation uint64) events.Event {
	return t.speaker.First(time.Now(), t.incarnation, events.NodeExited, t.name, &events.Exit{
		Node: t.name, Incarnation: t.incarnation, Generation: generation, Reason: "killed",
	})
}

// consent tells all units at step 0 before the first plan, as every node can make them, and then those of its place.
func (t *trainer) consent(cause events.Event, opening events.Opening, plan *events.Plan, step uint64) events.Event {
	consent := &events.Consent{
		Negotiation: opening.Negotiation, Node: t.name, Incarnation: t.incarnation, Accepted: true, Step: step,
	}
	switch {
	case plan == nil:
		consent.Holdings = []events.Holding{{Units: events.Range{End: layers}, Steps: []uint64{0}}}
	case opening.Abandon:
		consent.Holdings = t.holdings(plan, events.Holding{Steps: []uint64{step, step - 1}})
	default:
		consent.Holdings = t.holdings(plan, events.Holding{Steps: []uint64{step}, Current: true})
	}
	for _, pair := range opening.Connect {
		switch t.name {
		case pair.A:
			consent.Measurements = append(consent.Measurements, t.measured(pair.B))
		case pair.B:
			consent.Measurements = append(consent.Measurements, t.measured(pair.A))
		}
	}
	return t.speaker.Say(cause, events.Consented, t.name, consent)
}

func (t *trainer) holdings(plan *events.Plan, like events.Holding) []events.Holding {
	var holdings []events.Holding
	for _, units := range plan.UnitsOf(t.name) {
		like.Units = units
		holdings = append(holdings, like)
	}
	return holdings
}

func (t *trainer) measured(peer string) events.Measurement {
	return events.Measurement{
		From: t.name, To: peer, RoundTripSeconds: roundTripSeconds, BandwidthBytesPerSecond: bytesPerSecond,
	}
}

func (t *trainer) promise(cause events.Event, negotiation string, step uint64) events.Event {
	const ahead = 2 // as an agent: one more than the step under way
	return t.speaker.Say(cause, events.Promised, t.name,
		&events.Promise{Negotiation: negotiation, Node: t.name, StopStep: step + ahead})
}

// offers are what the trainer gives to others, with the parts that it would put into its store.
func (t *trainer) offers(cause events.Event, schedule events.Schedule) []events.Event {
	parts := map[int][]events.Part{}
	var units []int
	for _, transfer := range schedule.Plan.Migration.Transfers {
		for _, source := range transfer.Sources {
			if source.Node != t.name {
				continue
			}
			if parts[transfer.Unit] == nil {
				units = append(units, transfer.Unit)
			}
			parts[transfer.Unit] = append(parts[transfer.Unit], cut(transfer.Unit, source.Shards, &schedule)...)
		}
	}
	var said []events.Event
	for _, unit := range units {
		said = append(said, t.speaker.Say(cause, events.ShardOffered, fmt.Sprintf("unit-%d", unit), &events.Offer{
			Negotiation: schedule.Negotiation, Node: t.name, Unit: unit, Step: schedule.StopStep,
			Digest: digestOf(unit, schedule.StopStep), Bytes: parameterBytes + optimizerBytes, Parts: parts[unit],
		}))
	}
	return said
}

func cut(unit int, shards events.Range, schedule *events.Schedule) []events.Part {
	var parts []events.Part
	size := schedule.Plan.Migration.ShardBytes
	end := min(int64(shards.End)*size, parameterBytes+optimizerBytes)
	for first := int64(shards.First) * size; first < end; first += shardPart {
		parts = append(parts, events.Part{
			Digest: digestOf(unit, schedule.StopStep), First: first, End: min(first+shardPart, end),
		})
	}
	return parts
}

// receipt tells that all units that the trainer takes have come.
func (t *trainer) receipt(cause events.Event, schedule events.Schedule) (receipt events.Event, takes bool) {
	received := &events.Receipt{Negotiation: schedule.Negotiation, Node: t.name, Seconds: stepSeconds}
	for _, transfer := range schedule.Plan.Migration.Transfers {
		if transfer.To == t.name {
			received.Units = append(received.Units, events.ReceivedUnit{
				Unit: transfer.Unit, Step: schedule.StopStep, Digest: digestOf(transfer.Unit, schedule.StopStep),
				Bytes: parameterBytes + optimizerBytes,
			})
		}
	}
	return t.speaker.Say(cause, events.ShardReceived, t.name, received), len(received.Units) > 0
}

func (t *trainer) activated(cause events.Event, plan *events.Plan) events.Event {
	return t.speaker.Say(cause, events.PlanActivated, t.name, &events.Activation{
		Node: t.name, Generation: plan.Generation, Step: plan.ResumeStep + 1, StepSeconds: stepSeconds,
	})
}

func (t *trainer) pulse(generation, step uint64) events.Pulse {
	t.beats++
	return events.Pulse{
		Node: t.name, Incarnation: t.incarnation, Number: t.beats, Generation: generation, Step: step, StepSeconds: stepSeconds,
	}
}

// named reports whether the trainer's process is among the members.
func (t *trainer) named(members []events.Member) bool {
	member, there := events.MemberOf(members, t.name)
	return there && member.Incarnation == t.incarnation
}
