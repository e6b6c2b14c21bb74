package machine

import "github.com/reknit/reknit/events"

// preCopyStarted begins to move units while training goes on.
func (m *Machine) preCopyStarted(event events.Event, start events.PreCopyStart) {
	if !m.under(start.Negotiation) || m.negotiation.phase >= promised || !m.settings.PreCopies {
		return
	}
	m.negotiation.start = &heard[events.PreCopyStart]{event, start}
	m.beginPreCopy()
}

// beginPreCopy waits for the trainer's first boundary, where its state is lent.
func (m *Machine) beginPreCopy() {
	under := m.negotiation
	if under == nil || under.start == nil || under.phase >= preCopying || m.trainer == absent {
		return
	}
	under.phase, under.preCopy = preCopying, m.task()
	m.do(PreCopy{under.preCopy, under.to(under.start.payload.Plan)})
}

// caughtUp says that this node has what it can have while training goes on.
func (m *Machine) caughtUp(result CaughtUp) {
	under := m.negotiation
	if under == nil || under.preCopy != result.Task {
		return
	}
	m.say(under.start.event, events.PreCopyCaughtUp, m.settings.Node, &events.CaughtUp{
		Negotiation: under.start.payload.Negotiation, Node: m.settings.Node,
		Step: result.Step, Behind: result.Behind, Bytes: result.Bytes, Seconds: result.Seconds, Reason: result.Reason,
	})
}
