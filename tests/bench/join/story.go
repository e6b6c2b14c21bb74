package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// Line is something that was said in the cluster, and when the hub heard it.
type Line struct {
	Kind events.Kind // empty for a heartbeat
	At   time.Time
	Data []byte
}

// story makes sense of what the hub heard.
type story struct {
	lines     int               // heard so far
	now       time.Time         // of the last line
	changed   time.Time         // the last word of a negotiation
	requested time.Time         // by the node that joins
	before    map[string]uint64 // completed steps of each node then
	plans     []events.Plan
	committed map[uint64]string                       // negotiations, by generation
	began     map[string]map[uint64]events.Activation // by node and generation
	firstStep map[uint64]time.Time                    // by generation: until every node that trains had completed one
	steps     map[string]map[uint64]step              // by node and completed steps
	receipts  []events.Receipt
	caughtUp  []events.CaughtUp
	digests   map[int]string    // by row of the state
	final     map[string]uint64 // generation in which a node told its final digests
	moments   []moment          // of the join
	faults    []error
}

// moment is when something was said.
type moment struct {
	kind events.Kind
	at   time.Time
}

// telling are the entities whose events show where the time of a join goes, up to the first step under its plan.
var telling = []string{"negotiation", "restoration", "shard", "plan"}

func newStory() *story {
	return &story{
		committed: map[uint64]string{}, began: map[string]map[uint64]events.Activation{}, firstStep: map[uint64]time.Time{},
		steps: map[string]map[uint64]step{}, digests: map[int]string{}, final: map[string]uint64{},
	}
}

// hear takes the next line.
func (s *story) hear(line Line) error {
	s.lines++
	s.now = line.At
	entity, _, _ := strings.Cut(string(line.Kind), ".")
	if entity == "negotiation" {
		s.changed = line.At
	}
	last := len(s.moments) - 1
	over := last >= 0 && s.moments[last].kind == events.PlanActivated
	if slices.Contains(telling, entity) && !s.requested.IsZero() && !over {
		s.moments = append(s.moments, moment{line.Kind, line.At})
	}
	switch line.Kind {
	case "":
		return tell(line, func(pulse events.Pulse) { s.beat(pulse, line.At) })
	case events.JoinRequested:
		return tell(line, func(request events.Join) {
			if request.Node == joiner && s.requested.IsZero() {
				s.requested, s.before = line.At, s.newest()
			}
		})
	case events.PlanCommitted:
		return tell(line, func(plan events.Plan) { s.plans = append(s.plans, plan) })
	case events.Committed:
		return tell(line, func(c events.Commitment) { s.committed[c.Generation] = c.Negotiation })
	case events.PlanActivated:
		return tell(line, func(a events.Activation) {
			put(s.began, a.Node, a.Generation, a)
			s.firstStep[a.Generation] = line.At
		})
	case events.ShardReceived:
		return tell(line, func(receipt events.Receipt) { s.receipts = append(s.receipts, receipt) })
	case events.PreCopyCaughtUp:
		return tell(line, func(caughtUp events.CaughtUp) { s.caughtUp = append(s.caughtUp, caughtUp) })
	case events.TrainingDigested:
		return tell(line, s.digested)
	}
	return nil
}

func tell[P any](line Line, take func(P)) error {
	var payload P
	if err := json.Unmarshal(line.Data, &payload); err != nil {
		return fmt.Errorf("%s: %w", line.Kind, err)
	}
	take(payload)
	return nil
}

func put[V any](of map[string]map[uint64]V, node string, number uint64, value V) {
	if of[node] == nil {
		of[node] = map[uint64]V{}
	}
	of[node][number] = value
}

// step is one that a node completed.
type step struct {
	seconds float64
	heard   time.Time // first: half a second late where the heartbeat before was just sent
}

func (s *story) beat(pulse events.Pulse, at time.Time) {
	if _, known := s.steps[pulse.Node][pulse.Step]; pulse.Step > 0 && !known {
		put(s.steps, pulse.Node, pulse.Step, step{pulse.StepSeconds, at})
	}
}

func (s *story) digested(digests events.Digests) {
	if !digests.Final {
		return
	}
	s.final[digests.Node] = digests.Generation
	for _, row := range digests.Units {
		if known := s.digests[row.Unit]; known != "" && known != row.Digest {
			s.faults = append(s.faults, fmt.Errorf("row %d of the state: its holders differ", row.Unit))
		}
		s.digests[row.Unit] = row.Digest
	}
}

// plan is the one in force.
func (s *story) plan() events.Plan { return s.plans[len(s.plans)-1] }

// Training goes on undisturbed when nobody negotiated for so long, and so many steps were completed.
const (
	calm      = 8 * time.Second
	calmSteps = 6
)

func (s *story) settled() bool {
	if len(s.plans) == 0 || s.now.Sub(s.changed) < calm {
		return false
	}
	return !slices.ContainsFunc(trainersOf(s.plan()), func(node string) bool { return len(s.steps[node]) < calmSteps })
}

// trainersOf are the nodes that a plan gives something to train.
func trainersOf(plan events.Plan) (nodes []string) {
	for _, pipeline := range plan.Pipelines {
		for _, stage := range pipeline.Stages {
			nodes = append(nodes, stage.Node)
		}
	}
	return nodes
}

// complete reports whether all who train told the digests of the last step.
func (s *story) complete() bool {
	return len(s.plans) > 0 && !slices.ContainsFunc(trainersOf(s.plan()),
		func(node string) bool { return s.final[node] != s.plan().Generation })
}

// newest returns the completed steps of each node.
func (s *story) newest() map[string]uint64 {
	newest := map[string]uint64{}
	for node, steps := range s.steps {
		newest[node] = slices.Max(slices.Collect(maps.Keys(steps)))
	}
	return newest
}

// String tells how far it came.
func (s *story) String() string {
	return fmt.Sprintf("%d lines heard, %d plans, completed steps %v", s.lines, len(s.plans), s.newest())
}
