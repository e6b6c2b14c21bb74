package agentd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/reknit/reknit/services/agent/fence"
)

// mostAsked is how many of those that answered are asked again: what has the others do without many of them is the same for all.
const mostAsked = 3

// leave returns the crew of a place as those that may be absent from now on.
func (p place) leave(now time.Time) (crew []fence.Absent) {
	for _, member := range p.crew {
		crew = append(crew, fence.Absent{Node: member.Node, Address: member.Address, Until: now.Add(fence.Ended)})
	}
	return crew
}

// awaitAbsent waits for the scripts of nodes that the others do without. As long as an agent answers, its script may run: where the hub
// does not hear the node, it does not know that another plan is in force. Nobody waits for an agent that is gone, frozen or cannot be
// reached, nor if the step is given up or another plan is to take over.
func (s *standIn) awaitAbsent(step context.Context) {
	absent := s.answering(step, s.absent)
	if len(absent) > 0 {
		slog.Warn("the script is not started yet: its place was made without a node whose agent answers, and whose script may still write",
			"node", absent[0].Node, "of", len(absent), "until", absent[0].Until.Format(time.TimeOnly))
	}
	for len(absent) > 0 && !s.takenOver() {
		select {
		case <-step.Done():
			return
		case <-time.After(fence.HearEvery):
		}
		absent = s.answering(step, absent[:min(len(absent), mostAsked)])
	}
}

// answering returns those whose agents answer, out of those whose scripts may still run.
func (s *standIn) answering(ctx context.Context, absent []fence.Absent) []fence.Absent {
	ctx, cancel := context.WithTimeout(ctx, fence.HearEvery)
	defer cancel()
	answers := make([]bool, len(absent))
	var asked sync.WaitGroup
	for i, one := range absent {
		if one.Until.After(time.Now()) {
			asked.Go(func() {
				_, _, err := s.watch.Measure(ctx, one.Node, one.Address, 0)
				answers[i] = err == nil
			})
		}
	}
	asked.Wait()
	var left []fence.Absent
	for i, one := range absent {
		if answers[i] {
			left = append(left, one)
		}
	}
	return left
}
