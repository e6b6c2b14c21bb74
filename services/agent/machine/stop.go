package machine

import (
	"fmt"

	"github.com/reknit/reknit/events"
)

// lastSnapshot is what a negotiation that stops training asks of this node.
type lastSnapshot struct {
	step    uint64 // completed steps at which all stop
	asked   bool
	written bool // it was begun
}

// outlives reports whether a tier is there when all processes of the job have ended.
func (t Tier) outlives() bool { return t.Name != MemoryTier }

// snapshotRequested fixes the step at which all stop for good. It is not before the one that this node promised.
func (m *Machine) snapshotRequested(_ events.Event, request events.SnapshotRequest) {
	if m.under(request.Negotiation) && m.promise != nil && request.Step >= *m.promise {
		m.promise, m.negotiation.last = &request.Step, lastSnapshot{step: request.Step, asked: true}
	}
}

// mustWriteLast reports whether the node stands where all stop, and has not begun to write what it is to.
func (m *Machine) mustWriteLast() bool {
	if m.negotiation == nil || m.plan == nil {
		return false
	}
	last := m.negotiation.last
	return last.asked && !last.written && m.done == last.step
}

// stopsDiverged says why a job whose loss is not finite is not stopped with a snapshot, from which it would go on.
func (m *Machine) stopsDiverged() string {
	return fmt.Sprintf("the loss is not finite since step %d, and a snapshot of that would be the one to go on from: two signals within "+
		"10 s to each agent end the job, and the same scripts go on from the newest snapshot of before", m.diverged)
}

func (m *Machine) writeLast() {
	m.negotiation.last.written = true
	m.capture(true, Tier.outlives)
}

// stopped hears that training has stopped: what this node holds is in a snapshot, too, and its process ends.
func (m *Machine) stopped(_ events.Event, stop events.JobStop) {
	m.end(End{Left: true, Stopped: true, Reason: fmt.Sprintf("training has stopped after step %d, of which a snapshot is complete (%s): "+
		"it goes on from there once the same scripts are started again", stop.Step, stop.Tier)})
}
