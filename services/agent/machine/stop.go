package machine

import (
	"fmt"

	"github.com/reknit/reknit/events"
)

// lastSnapshot is what a negotiation that stops training asks of this node.
type lastSnapshot struct {
	step    uint64 // completed steps at which all stop
	asked   events.Event
	written bool // it was begun
}

// Outlives reports whether a tier is there when all processes of the job have ended.
func (t Tier) Outlives() bool { return t.Name != MemoryTier }

// lasting returns the tiers that are there when all processes of the job have ended, the nearest first.
func (m *Machine) lasting() (tiers []string) {
	for _, tier := range m.settings.Tiers {
		if tier.Outlives() {
			tiers = append(tiers, tier.Name)
		}
	}
	return tiers
}

// snapshotRequested fixes the step at which all stop for good. It is not before the one that this node promised.
func (m *Machine) snapshotRequested(event events.Event, request events.SnapshotRequest) {
	if m.under(request.Negotiation) && m.promise != nil && request.Step >= *m.promise {
		m.promise, m.negotiation.last = &request.Step, lastSnapshot{step: request.Step, asked: event}
	}
}

// isOf reports whether all stop at a step.
func (l lastSnapshot) isOf(step uint64) bool { return l.asked.Kind != "" && step == l.step }

// mustWriteLast reports whether the node stands where all stop, and has not begun to write what it is to.
func (m *Machine) mustWriteLast() bool {
	if m.negotiation == nil || m.plan == nil {
		return false
	}
	last := m.negotiation.last
	return last.isOf(m.done) && !last.written
}

// stopsDiverged says why a job whose loss is not finite is not stopped with a snapshot, from which it would go on.
func (m *Machine) stopsDiverged() string {
	return fmt.Sprintf("the loss is not finite since step %d, and a snapshot of that would be the one to go on from: two signals within "+
		"10 s to each agent end the job, and the same scripts go on from the newest snapshot of before", m.diverged)
}

// writeLast tells that this node has made the step at which all stop, and has it written. Nobody ends before all have made it.
func (m *Machine) writeLast() {
	last := &m.negotiation.last
	last.written = true
	m.say(last.asked, events.TrainingDigested, m.settings.Node,
		&events.Digests{Node: m.settings.Node, Incarnation: m.incarnation, Generation: m.generation(), Step: m.done})
	if m.diverged > 0 {
		m.refuseLast()
		return
	}
	m.capture(true, Tier.Outlives)
}

// refuseLast tells that no snapshot is taken of a loss that was finite when all were asked to stop, and is not any more.
func (m *Machine) refuseLast() {
	tier := m.lasting()[0]
	m.say(m.negotiation.last.asked, events.SnapshotFailed, m.settings.Node, &events.SnapshotFailure{
		Node: m.settings.Node, Tier: tier, Step: m.done, Plan: m.plan.digest, Units: m.plan.plan.UnitsOf(m.settings.Node),
		Finding: OtherFinding, Reason: m.stopsDiverged(), Tiers: []string{tier},
	})
}

// stopped hears that training has stopped: what this node holds is in a snapshot, too, and its process ends.
func (m *Machine) stopped(_ events.Event, stop events.JobStop) {
	reason := stop.String()
	if stop.Tier != "" && m.plan != nil && m.done < stop.Step {
		reason += fmt.Sprintf("; this node did not make that step in time, and its model is that of step %d", m.done)
	}
	m.end(End{Left: true, Stopped: true, Reason: reason})
}
