package machine

import (
	"math"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// priced is a machine with a plan of five nodes in force, the last of which came with it.
func priced(transfers int) *Machine {
	m := New(Settings{Cluster: "opticks"})
	plan := &events.Plan{Cluster: "opticks", Generation: 4, Parent: "p"}
	plan.Migration.Transfers = make([]events.Transfer, transfers)
	m.state.Plan, m.state.Committed = plan, time.Unix(1000, 0)
	for i, node := range []string{"n1", "n2", "n3", "n4", "new"} {
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 1, Stages: []events.Stage{{Node: node}}})
		m.state.Members[node] = &member{Since: time.Unix(int64(10+i), 0)}
	}
	m.state.Members["new"].Since = m.state.Committed
	return m
}

// tells says that a node made its first step so many seconds after the commit, and how long it stood still by its own clock.
func (m *Machine) tells(node string, generation uint64, after, stall float64) {
	logged := m.state.Committed.Add(time.Duration(after * float64(time.Second)))
	hearing(m, events.Event{Logged: logged}, func() {
		m.activated(events.Activation{Node: node, Generation: generation, StallSeconds: stall, StepSeconds: 1})
	})
}

func TestWhatAChangeCostIsTheMedianOfThoseWhoTrainedBefore(t *testing.T) {
	for transfers, of := range map[int]func(prices) (measured, other float64){
		0: func(p prices) (float64, float64) { return p.Switch, p.Restart },
		2: func(p prices) (float64, float64) { return p.Restart, p.Switch },
	} {
		m := priced(transfers)
		m.tells("new", 4, 2, 0)  // stood still for nothing, as it did not train before
		m.tells("n1", 3, 2, 9)   // of a plan before
		m.tells("gone", 4, 2, 9) // nobody knows it
		m.tells("n1", 4, 3, 9)   // 2 s without the step: the rest was before the commit
		m.tells("n1", 4, 9, 9)   // again
		m.tells("n2", 4, 9e9, 1e9)
		if measured, _ := of(m.state.Prices); measured != 0 {
			t.Fatalf("%v s, told by half of those who trained before", measured)
		}
		m.tells("n3", 4, 9, 0.5) // trained on after the commit
		if measured, other := of(m.state.Prices); measured != 2 || other != 0 {
			t.Fatalf("%d transfers: measured %v and %v s, expected the median 2 and 0", transfers, measured, other)
		}
		m.tells("n4", 4, 9, 7)
		if measured, _ := of(m.state.Prices); measured != 2 || len(m.state.Prices.Told) > 0 {
			t.Fatalf("%v s, told once more than was needed", measured)
		}
	}
}

func TestAnotherChangeCountsAsMuchAsWhatWasMeasuredBefore(t *testing.T) {
	m := priced(0)
	for _, stall := range []float64{3, 1, 0} {
		m.state.Prices.committed()
		for _, node := range []string{"n1", "n2", "n3"} {
			m.tells(node, 4, 100, stall)
		}
	}
	if got, want := m.state.Prices.Switch, ((3.0+1)/2+leastPrice)/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("a switch costs %v s, expected %v", got, want)
	}
}

func TestAPlanBeforeWhichNobodyTrainedTellsNoPrice(t *testing.T) {
	for what, spoil := range map[string]func(*events.Plan){
		"the first":       func(p *events.Plan) { p.Parent = "" },
		"from a snapshot": func(p *events.Plan) { p.Snapshot = "sha256:0" },
	} {
		m := priced(1)
		spoil(m.state.Plan)
		for _, node := range []string{"n1", "n2", "n3", "n4"} {
			m.tells(node, 4, 5, 5)
		}
		if m.state.Prices.Restart != 0 {
			t.Errorf("%s: %v s", what, m.state.Prices.Restart)
		}
	}
}
