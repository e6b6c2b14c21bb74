package policy

import (
	"cmp"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Waiting is the name under which doing nothing is weighed.
const Waiting = "wait"

// Wait is the plan in force with its lost nodes back in their places, which takes until they are there and have fetched
// their layers; meanwhile nothing is trained. It is no plan to commit: who takes it waits. There is none where no node
// is lost or expected back, where a layer or a partition of one has no live holder, or where the policy does not wait.
func (p Policy) Wait(s Situation) []Candidate {
	if !p.Waits || !s.mayReturn() || len(s.lostStages()) == 0 || s.replicas() == 0 {
		return nil
	}
	return []Candidate{{
		Policy: Waiting, Pipelines: s.Current, Replicas: s.replicas(), StepSeconds: s.stepSeconds(s.wires(), s.Current),
		TransitionSeconds: s.SecondsUntilReturn + s.backSeconds(s.Current),
	}}
}

// score is the samples a second that a candidate is expected to deliver until the next failure. The plan in force may
// be taken up again if the lost nodes are expected back before that.
func (s Situation) score(c Candidate) float64 {
	if !s.mayReturn() {
		return s.meanwhile(c) +
			estimate.ExpectedThroughput(s.GlobalBatch, c.StepSeconds, c.TransitionSeconds, s.SecondsBetweenFailures)
	}
	return estimate.ThroughputWithReturn(s.GlobalBatch, c.StepSeconds, c.TransitionSeconds, estimate.Return{
		AfterSeconds: s.SecondsUntilReturn, StepSeconds: s.CurrentStepSeconds(),
		TransitionSeconds: s.backSeconds(c.Pipelines),
	}, s.SecondsBetweenFailures)
}

// timed is the situation with the step of the plan in force, where that trains on while layers are copied for another:
// where all can pre-copy and nobody is lost.
func (s Situation) timed() Situation {
	if s.PreCopies && len(s.Current) > 0 && s.continues() == nil && len(s.lostStages()) == 0 {
		s.currentSeconds = s.CurrentStepSeconds()
	}
	return s
}

// CurrentSeconds is what a step of the plan in force takes in the model, with all its nodes; zero where there is none.
func (s Situation) CurrentSeconds() float64 {
	if len(s.Current) == 0 {
		return 0
	}
	return s.stepSeconds(s.wires(), s.Current)
}

// CurrentStepSeconds is what such a step is expected to take. There is a plan in force.
func (s Situation) CurrentStepSeconds() float64 {
	return s.correctedStep(s.CurrentSeconds(), s.Current)
}

// corrected is what a step is expected to take of what the model says.
func (s Situation) corrected() float64 { return cmp.Or(s.Correction, 1) }

// correctedStep is how long a step is expected to take if the model says so many seconds of it. A node alone waits for nobody, and
// updates the model as all do.
func (s Situation) correctedStep(seconds float64, pipelines []Pipeline) float64 {
	seconds *= s.corrected()
	if IsAlone(pipelines) {
		return seconds + s.OwnSeconds
	}
	return seconds + s.OverheadSeconds
}

// IsAlone reports whether pipelines are one node's.
func IsAlone(pipelines []Pipeline) bool { return len(pipelines) == 1 && len(pipelines[0].Stages) == 1 }

// meanwhile is the samples a second, until the next failure, that the plan in force of a timed situation trains while
// layers are copied. Moves that take less than a step are not pre-copied.
func (s Situation) meanwhile(c Candidate) float64 {
	if s.currentSeconds == 0 || c.CopySeconds <= s.currentSeconds {
		return 0
	}
	return estimate.ExpectedThroughput(s.GlobalBatch, s.currentSeconds, 0, s.SecondsBetweenFailures) -
		estimate.ExpectedThroughput(s.GlobalBatch, s.currentSeconds, c.CopySeconds, s.SecondsBetweenFailures)
}

// mayReturn reports whether the plan in force may be taken up again.
func (s Situation) mayReturn() bool {
	return s.SecondsUntilReturn > 0 && len(s.Current) > 0 && s.continues() == nil
}

// backSeconds is the transition from some pipelines back to the plan in force, with the lost nodes there and empty.
func (s Situation) backSeconds(from []Pipeline) float64 {
	s = s.staying()
	has, alive := map[string]holding{}, s.alive()
	for _, pipeline := range from {
		for _, stage := range pipeline.Stages {
			if alive[stage.Node] {
				has[stage.Node] = holding{stage.Layers, len(pipeline.Partitions)}
			}
		}
	}
	return s.transitionSeconds(s.fetchSeconds(s.largestMissing(has, s.Current)))
}
