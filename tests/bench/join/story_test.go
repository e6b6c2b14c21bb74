package main

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// scripted is a story whose nodes n1 and n2 take a second for each step, the node that joins asks after so many, and a
// plan with it takes over after stop steps. Then steps take two seconds.
type scripted struct {
	*testing.T
	*story
	began time.Time
}

func (s scripted) say(kind events.Kind, seconds float64, payload any) {
	s.Helper()
	data, err := json.Marshal(payload)
	if err == nil {
		err = s.hear(Line{kind, s.began.Add(time.Duration(seconds * 1e9)), data})
	}
	if err != nil {
		s.Fatal(err)
	}
}

func planOf(generation uint64, nodes ...string) events.Plan {
	plan := events.Plan{Generation: generation}
	for _, node := range nodes {
		plan.Pipelines = append(plan.Pipelines,
			events.Pipeline{Stages: []events.Stage{{Node: node, Layers: events.Range{End: 1}}}})
	}
	return plan
}

const (
	ahead = 0.3 // seconds that n1 is ahead of n2
	asks  = 10  // completed steps when the node asks to join
	stops = 14  // and when the plan takes over
)

// told is a join for which both stand so long. Every third heartbeat comes late.
func told(t *testing.T, stands float64, alter func(*story)) (join, error) {
	s := scripted{t, newStory(), time.Now()}
	s.say(events.PlanCommitted, 0, planOf(1, "n1", "n2"))
	at := map[string]float64{"n2": ahead}
	for number := uint64(1); number <= steps; number++ {
		for _, node := range []string{"n1", "n2"} {
			took := 1.0
			if number > stops {
				took = 2
			}
			if number == stops+1 { // n2 was behind: both go on at one time
				at[node] = stops + ahead + stands
				s.say(events.PlanActivated, at[node],
					events.Activation{Node: node, Generation: 2, Step: number, StallSeconds: 1 + stands})
			}
			at[node] += took
			s.say("", at[node]+float64(number%3/2)*0.4, events.Pulse{Node: node, Step: number, StepSeconds: took})
		}
		if number == asks {
			s.say(events.JoinRequested, asks, events.Join{Node: joiner})
		}
		if number == stops {
			s.say(events.PlanCommitted, stops, planOf(2, "n1", "n2", joiner))
			s.say(events.Committed, stops, events.Commitment{Negotiation: "g2", Generation: 2})
			s.say(events.ShardReceived, stops, events.Receipt{Negotiation: "g2", Node: joiner,
				Sources: []events.Received{{Bytes: 7}, {Bytes: 8}}})
			s.say(events.ShardReceived, stops, events.Receipt{Negotiation: "g1", Node: joiner,
				Sources: []events.Received{{Bytes: 100}}})
		}
	}
	for _, node := range []string{"n1", "n2"} {
		s.say(events.TrainingDigested, 100, events.Digests{Node: node, Final: true, Generation: 2,
			Units: []events.UnitDigest{{Unit: 0, Digest: "same"}}})
	}
	if alter != nil {
		alter(s.story)
	}
	return s.join("0")
}

func TestIdleIsWhatIsLostBetweenStepsWhateverStepsTake(t *testing.T) {
	for _, stands := range []float64{0, 0.25, 3} {
		result, err := told(t, stands, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := result.idle(); math.Abs(got-2*stands) > 1e-6 {
			t.Errorf("two stood for %v s each: idle for %v", stands, got)
		}
		if result.slower() != 0 || result.MovedBytes != 15 || result.Before != 1 || result.After != 2 {
			t.Errorf("stood for %v s: %+v", stands, result)
		}
		if want := stops + ahead + stands - asks; math.Abs(result.FirstStepSeconds-want) > 1e-6 {
			t.Errorf("first step after %v s: expected %v", result.FirstStepSeconds, want)
		}
	}
}

func TestAJoinThatCannotBeJudgedIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*story){
		"nothing for the node that joins": func(s *story) { s.plans = s.plans[:1] },
		"a step nobody heard of":          func(s *story) { delete(s.steps["n1"], stops) },
		"a node that never began":         func(s *story) { delete(s.began["n2"], 2) },
		"holders that differ": func(s *story) {
			s.digested(events.Digests{Node: "n2", Final: true, Units: []events.UnitDigest{{Unit: 0, Digest: "other"}}})
		},
	} {
		if result, err := told(t, 1, spoil); err == nil {
			t.Errorf("%s: judged %+v", name, result)
		}
	}
}

func TestTrainingIsCompleteWhenAllWhoTrainToldTheirDigestsUnderTheLastPlan(t *testing.T) {
	s := scripted{t, newStory(), time.Now()}
	tell := func(node string, generation uint64) {
		s.say(events.TrainingDigested, 1, events.Digests{Node: node, Final: true, Generation: generation})
	}
	s.say(events.PlanCommitted, 0, planOf(1, "n1"))
	tell("n1", 1)
	s.say(events.PlanCommitted, 1, planOf(2, "n1", "n2"))
	tell("n2", 2)
	if s.complete() {
		t.Error("n1 told digests under an older plan only")
	}
	tell("n1", 2)
	if !s.complete() {
		t.Error(fmt.Sprint("not complete: ", s))
	}
}
