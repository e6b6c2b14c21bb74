package agentd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/fence"
)

func scriptsOf(crew []events.Member) (scripts []fence.Script) {
	for _, member := range crew {
		scripts = append(scripts, fence.Script{Node: member.Node, Incarnation: member.Incarnation, Address: member.Address})
	}
	return scripts
}

// awaitAbsent waits for the scripts of nodes that the others do without, and reports whether none of them may write any more. It is given
// up with the step, or where another plan is to take over.
func (s *standIn) awaitAbsent(step context.Context) bool {
	wait, told := s.scripts.Wait(), false
	defer s.session.Scripted(nil)
	for !wait.Over(time.Now()) {
		next := time.After(fence.HearEvery)
		s.hear(step, wait)
		answering := wait.Answering(time.Now())
		s.session.Scripted(awaiting(answering, time.Now()))
		if len(answering) > 0 && !told {
			told = true
			slog.Warn("the script is not started yet: its place was made without a node whose agent answers, and whose script may "+
				"still write", "node", answering[0].Node, "of", len(answering), "until", answering[0].Until.Format(time.TimeOnly))
		}
		if wait.Over(time.Now()) {
			break
		}
		select {
		case <-step.Done():
			return false
		case <-next:
		}
		if s.takenOver() {
			return false
		}
	}
	return step.Err() == nil
}

// awaiting is what the others are told of a script that is not started yet; nil where nobody is known to be waited for.
func awaiting(answering []fence.Absent, now time.Time) *events.Script {
	if len(answering) == 0 {
		return nil
	}
	told := &events.Script{}
	for _, one := range answering[:min(len(answering), events.MostAwaited)] {
		told.Awaits = append(told.Awaits, one.Node)
		told.UntilSeconds = max(told.UntilSeconds, one.Until.Sub(now).Seconds())
	}
	return told
}

// hear asks a round of agents.
func (s *standIn) hear(ctx context.Context, wait *fence.Wait) {
	ctx, cancel := context.WithTimeout(ctx, fence.HearEvery)
	defer cancel()
	round := wait.Round(time.Now())
	answers := make([]fence.Answer, len(round))
	var asked sync.WaitGroup
	for i, one := range round {
		asked.Go(func() { answers[i] = s.askOne(ctx, one) })
	}
	asked.Wait()
	for i, one := range round {
		wait.Hear(one.Node, answers[i])
	}
}

func (s *standIn) askOne(ctx context.Context, one fence.Absent) fence.Answer {
	err := s.watch.Ask(ctx, one.Node, one.Incarnation, one.Address)
	switch {
	case err == nil:
		return fence.Answers
	case errors.Is(err, syscall.ECONNREFUSED):
		return fence.Refuses
	}
	return fence.Silent
}
