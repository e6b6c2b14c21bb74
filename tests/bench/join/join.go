package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/model"
)

// join is what a join took.
type join struct {
	PreCopySteps     string
	Generation       uint64
	FirstStepSeconds float64 // from the request until all have completed a step under the plan
	Stood            []stood // the others
	MovedBytes       int64
	Layers           []string // that each node received
	CaughtUp         []events.CaughtUp
	Before, After    float64 // seconds of a step
	Digest           string
	Layouts          [2]string // before and after
	Moments          string    // seconds from the request to what was said
}

// stood is what a change of plans cost a trainer, in seconds.
type stood struct {
	Node   string
	Told   float64 // by its agent: between its last step under the old plan and its first under the new, less a usual one of the old
	Idle   float64 // from the last to stop until it went on, and what it did for others between other steps
	Waited float64 // for the last to stop
	Slower float64 // that its steps between the request and the change took longer than usual ones
}

// idle is the time that all others lost between their steps.
func (j join) idle() float64 {
	seconds := 0.0
	for _, stood := range j.Stood {
		seconds += stood.Idle
	}
	return seconds
}

// slower is the time that they lost in their steps.
func (j join) slower() float64 {
	seconds := 0.0
	for _, stood := range j.Stood {
		seconds += stood.Slower
	}
	return seconds
}

// join tells of the plan that gave the node that joined something to train.
func (s *story) join(preCopySteps string) (join, error) {
	result := join{PreCopySteps: preCopySteps, CaughtUp: s.caughtUp}
	at := slices.IndexFunc(s.plans, func(plan events.Plan) bool { return slices.Contains(trainersOf(plan), joiner) })
	if at < 1 {
		return result, fmt.Errorf("expected a plan that gives the node that joined something to train, the last is %s",
			layout(s.plan()))
	}
	plan := s.plans[at]
	result.Generation = plan.Generation
	first := nodeName(0)
	result.Before = s.usual(first, 0, s.before[first])
	result.After = s.usual(first, s.began[first][plan.Generation].Step, steps)
	result.FirstStepSeconds = s.firstStep[plan.Generation].Sub(s.requested).Seconds()
	result.Layouts = [2]string{layout(s.plans[at-1]), layout(plan)}
	var err error
	if result.Stood, err = s.allStood(trainersOf(s.plans[at-1]), plan); err != nil {
		return result, err
	}
	for _, receipt := range s.receipts {
		if receipt.Negotiation == s.committed[plan.Generation] {
			result.add(receipt)
		}
	}
	result.Moments, result.Digest = s.said(), s.digest()
	return result, errors.Join(s.faults...)
}

// add counts what a node received.
func (j *join) add(receipt events.Receipt) {
	for _, source := range receipt.Sources {
		j.MovedBytes += source.Bytes
	}
	j.Layers = append(j.Layers, fmt.Sprintf("%s took %d in %.2f s", receipt.Node, len(receipt.Units), receipt.Seconds))
}

// said tells what was said when.
func (s *story) said() string {
	var text strings.Builder
	for i, moment := range s.moments {
		if i == 0 || s.moments[i-1].kind != moment.kind {
			fmt.Fprintf(&text, " %s", moment.kind)
		}
		fmt.Fprintf(&text, " %.2f", moment.at.Sub(s.requested).Seconds())
	}
	return text.String()
}

// digest is the model's.
func (s *story) digest() string {
	digests := make([]string, len(s.digests))
	for row, digest := range s.digests {
		digests[row] = digest
	}
	return model.ModelDigest(digests)
}

// layout shows who trains which layers.
func layout(plan events.Plan) string {
	var text strings.Builder
	for _, pipeline := range plan.Pipelines {
		for _, stage := range pipeline.Stages {
			fmt.Fprintf(&text, " %s %d-%d", stage.Node, stage.Layers.First, stage.Layers.End)
		}
		fmt.Fprintf(&text, " (%d);", pipeline.MicroBatches)
	}
	return text.String()
}

// allStood tells what a plan cost those who trained before.
func (s *story) allStood(nodes []string, plan events.Plan) (all []stood, err error) {
	courses, last := make([]course, len(nodes)), time.Duration(math.MinInt64)
	for i, node := range nodes {
		if courses[i], err = s.course(node, plan); err != nil {
			return nil, err
		}
		last = max(last, courses[i].stopped)
	}
	for i, c := range courses {
		all = append(all, stood{
			Node: nodes[i], Told: s.began[nodes[i]][plan.Generation].StallSeconds, Slower: c.slower,
			Idle: (c.resumed - last + c.between).Seconds(), Waited: (last - c.stopped).Seconds(),
		})
	}
	return all, nil
}

// course is how a trainer came from one plan to the next, since the request.
type course struct {
	stopped, resumed time.Duration
	between          time.Duration // steps before it stopped
	slower           float64
}

// course tells how a trainer came to a plan. In its own steps' time it has come so far; on the clock of the hub it is
// late by what it spent between steps. The step that was heard soonest tells how late it is.
func (s *story) course(node string, plan events.Plan) (course, error) {
	began, ok := s.began[node][plan.Generation]
	if !ok {
		return course{}, fmt.Errorf("%s: expected that it began to train under plan %d", node, plan.Generation)
	}
	const never = time.Duration(math.MaxInt64)
	before, first, usual := s.before[node], began.Step, s.usual(node, 0, s.before[node])
	calm, stop, after := never, never, never // how late it was
	var result course
	var trained, trainedThere time.Duration
	for number := uint64(1); number < steps; number++ { // training is complete before the heartbeat after the last is heard
		step, known := s.steps[node][number]
		if !known {
			return result, fmt.Errorf("%s: expected a heartbeat after step %d", node, number)
		}
		trained += time.Duration(step.seconds * float64(time.Second))
		late := step.heard.Sub(s.requested) - trained
		if number <= before && number+calmSteps > before {
			calm = min(calm, late)
		}
		if number < first && number+3 >= first {
			stop = min(stop, late)
		}
		if number > before && number < first {
			result.slower += step.seconds - usual
		}
		if number+1 == first {
			trainedThere = trained
		}
		if number >= first {
			after = min(after, late)
		}
	}
	result.stopped, result.resumed, result.between = stop+trainedThere, after+trainedThere, stop-calm
	return result, nil
}

// usual is the median of the seconds of a node's steps behind one and up to another.
func (s *story) usual(node string, behind, upTo uint64) float64 {
	var seconds []float64
	for number, step := range s.steps[node] {
		if number > behind && number <= upTo {
			seconds = append(seconds, step.seconds)
		}
	}
	if len(seconds) == 0 {
		return 0
	}
	slices.Sort(seconds)
	return seconds[len(seconds)/2]
}
