package machine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// releaseRequested goes on with a step that is held, as a user asks: it is tried again, or its samples are passed over. Asked for again, it
// is told again what was done.
func (m *Machine) releaseRequested(request events.ReleaseRequest) {
	known := &m.state.Poison
	if done := known.Released; done != nil && done.Hold == request.Hold && done.Step == request.Step && done.Skip == request.Skip {
		m.say(events.StepReleased, m.settings.Cluster, done)
		return
	}
	if reason := m.cannotRelease(request); reason != "" {
		m.refuseRelease(request, reason)
		return
	}
	release := &events.Release{
		Hold: known.Held.Hold, Step: known.Held.Step, Samples: known.Held.Samples, Skip: request.Skip, Reason: request.Reason,
	}
	delete(known.Suspects, release.Step) // as many have to end in it again
	if release.Skip {
		known.Skipped = append(known.Skipped, release.Samples)
		known.Skipped = joined(known.Skipped)
	}
	known.Held, known.Why, known.Released = nil, "", release
	m.state.Hold.Active = false
	m.say(events.StepReleased, m.settings.Cluster, release)
	m.agenda.opens = true
}

// joined returns stretches in their order, with those that touch each other as one.
func joined(stretches []events.Samples) []events.Samples {
	slices.SortFunc(stretches, func(a, b events.Samples) int { return cmp.Compare(a.First, b.First) })
	var apart []events.Samples
	for _, stretch := range stretches {
		last := len(apart) - 1
		if last < 0 || apart[last].End() < stretch.First {
			apart = append(apart, stretch)
			continue
		}
		apart[last].Count = int(max(apart[last].End(), stretch.End()) - apart[last].First)
	}
	return apart
}

func (m *Machine) refuseRelease(request events.ReleaseRequest, reason string) {
	m.say(events.ReleaseRefused, m.settings.Cluster,
		&events.ReleaseRefusal{Hold: request.Hold, Step: request.Step, Reason: reason})
}

// cannotRelease says why what a user asks for is not done; empty where it can be.
func (m *Machine) cannotRelease(request events.ReleaseRequest) string {
	known := &m.state.Poison
	switch held, done := known.Held, known.Released; {
	case m.state.Complete != nil:
		return m.isComplete()
	case held == nil && done != nil && done.Hold == request.Hold:
		return "this step was released already, the other way: " + done.Reason
	case held == nil:
		return "no step is held"
	case held.Hold != request.Hold || held.Step != request.Step:
		return fmt.Sprintf("expected hold %d, of step %d, got %d, of step %d", held.Hold, held.Step, request.Hold, request.Step)
	case request.Skip && len(known.Skipped) >= mostSkipped:
		return fmt.Sprintf("%d stretches of samples are passed over already, and there may be no more: mend what ends the trainers",
			mostSkipped)
	}
	return ""
}

// isSkipped reports whether some samples of a step are passed over where a plan goes on from it.
func (m *Machine) isSkipped(step uint64) bool {
	first := m.samplesOf(step)
	return m.behindSkipped(first.First, first.Count) != first.First
}

// behindSkipped returns the position from which a step of so many samples has none that are passed over, from one on.
func (m *Machine) behindSkipped(position uint64, batch int) uint64 {
	for _, skipped := range m.state.Poison.Skipped { // in their order
		if skipped.First < position+uint64(batch) && position < skipped.End() {
			position = skipped.End()
		}
	}
	return position
}

// passOver has a plan go on behind samples that are passed over, and say so.
func (m *Machine) passOver(plan *events.Plan) {
	from := plan.Data.ConsumedSamples
	behind := m.behindSkipped(from, plan.Data.GlobalBatch)
	if behind > from {
		plan.Data.ConsumedSamples, plan.Data.Skipped = behind, &events.Samples{First: from, Count: int(behind - from)}
	}
}
