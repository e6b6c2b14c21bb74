package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// keeps is a machine under whose plan n1 holds layers 0-1 and n2 layers 2-3.
func keeps(t *testing.T) *Machine {
	m := New("c", Settings{})
	pipelined(t, m, 1)
	return m
}

func pipelined(t *testing.T, m *Machine, generation uint64) {
	t.Helper()
	id := fmt.Sprint("g", generation)
	parent := ""
	if generation > 1 {
		parent = planOf(generation - 1)
	}
	plan := events.Plan{Cluster: "c", Generation: generation, Parent: parent, Nodes: members("n1", "n2"),
		Data:      events.Data{GlobalBatch: 1, MicroBatch: 1},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{stage("n1", 0, 2), stage("n2", 2, 4)}}}}
	hear(t, m, events.RestorationAsked, &events.RestorationRequest{Negotiation: id, Proposal: events.Proposal{Negotiation: id, Plan: plan},
		Holders: []events.Holder{held("n1", 0, 2), held("n2", 2, 4)}, Units: slices.Repeat([]int64{9}, 4)})
	hear(t, m, events.Committed, &events.Commitment{Negotiation: id, Generation: generation, PlanDigest: planOf(generation)})
}

func planOf(generation uint64) string { return events.Digest(fmt.Append(nil, generation)) }

// writes has a node say that it wrote units, and returns what is said of it.
func writes(t *testing.T, m *Machine, node string, generation, step uint64, first, end int) string {
	t.Helper()
	var said []string
	for _, event := range hear(t, m, events.SnapshotWritten, &events.SnapshotPart{
		Node: node, Tier: "disk", Step: step, Plan: planOf(generation), Units: []events.Range{{First: first, End: end}},
	}) {
		switch event.Kind {
		case events.SnapshotCompleted:
			snapshot, _ := events.Open[events.CompleteSnapshot](event)
			said = append(said, fmt.Sprint("complete ", snapshot.Step))
		case events.SnapshotOverdue:
			snapshot, _ := events.Open[events.OverdueSnapshot](event)
			said = append(said, fmt.Sprint("late ", snapshot.Step, snapshot.Units))
		}
	}
	return strings.Join(said, ", ")
}

func TestASnapshotIsCompleteOnceEveryUnitIsWritten(t *testing.T) {
	m := keeps(t)
	if said := writes(t, m, "n1", 1, 8, 0, 2); said != "" {
		t.Errorf("said %q of a half", said)
	}
	if said := writes(t, m, "n2", 1, 16, 2, 4); said != "" {
		t.Errorf("said %q of the other half at another step", said)
	}
	if said := writes(t, m, "n2", 1, 8, 2, 4); said != "complete 8" {
		t.Errorf("said %q", said)
	}
	if said := writes(t, m, "n2", 1, 8, 2, 4); said != "" {
		t.Errorf("said %q again", said)
	}
}

func TestWhatANodeDoesNotHoldItDidNotWrite(t *testing.T) {
	m := keeps(t)
	for _, node := range []string{"n1", "stranger"} {
		if said := writes(t, m, node, 1, 8, 0, 4); said != "" {
			t.Errorf("said %q when %s spoke for all units", said, node)
		}
	}
	if said := writes(t, m, "n2", 7, 8, 0, 4); said != "" {
		t.Errorf("said %q of a plan that nobody knows", said)
	}
}

func TestWhatNobodyWroteIsToldOnceTwoLaterOnesHaveParts(t *testing.T) {
	m := keeps(t)
	for _, c := range []struct {
		step uint64
		want string
	}{{8, ""}, {16, ""}, {24, "late 8 [{2 4}]"}, {32, "late 16 [{2 4}]"}} {
		if said := writes(t, m, "n1", 1, c.step, 0, 2); said != c.want {
			t.Errorf("at step %d said %q: expected %q", c.step, said, c.want)
		}
	}
	if said := writes(t, m, "n2", 1, 16, 2, 4); said != "complete 16" {
		t.Errorf("said %q when the late part came", said)
	}
	if said := writes(t, m, "n1", 1, 40, 0, 2); said != "late 24 [{2 4}]" {
		t.Errorf("said %q: expected those behind the complete one to be waited for, and none before", said)
	}
}

func TestAPartMayBeWrittenWhenTheNextPlanIsInForce(t *testing.T) {
	m := keeps(t)
	writes(t, m, "n1", 1, 8, 0, 2)
	pipelined(t, m, 2)
	if said := writes(t, m, "n2", 1, 8, 2, 4); said != "complete 8" {
		t.Errorf("said %q", said)
	}
	pipelined(t, m, 3)
	if said := writes(t, m, "n1", 1, 16, 0, 2) + writes(t, m, "n2", 1, 16, 2, 4); said != "" || len(m.state.Keeping) != mostKeeping {
		t.Errorf("said %q of a plan two before, %d are remembered", said, len(m.state.Keeping))
	}
}

func TestWhoSpeaksOfStepsThatNeverComeHidesNoneThatDo(t *testing.T) {
	m := keeps(t)
	for step := range uint64(100) {
		writes(t, m, "n2", 1, 1<<50+step, 2, 3)
	}
	if open := len(m.state.Keeping[0].tier("disk").Open); open > mostOpen {
		t.Fatalf("%d are open", open)
	}
	writes(t, m, "n1", 1, 8, 0, 2)
	if said := writes(t, m, "n2", 1, 8, 2, 4); !strings.Contains(said, "complete 8") {
		t.Errorf("said %q", said)
	}
}

// Each node skips steps while its disk is slow.
func TestSnapshotsThatCannotBecomeCompleteHideNoneThatCan(t *testing.T) {
	m := keeps(t)
	for step := uint64(0); step < 4*mostOpen; step += 2 {
		writes(t, m, "n1", 1, step, 0, 2)
		writes(t, m, "n2", 1, step+1, 2, 4)
	}
	for step := uint64(100); step < 110; step++ {
		writes(t, m, "n1", 1, step, 0, 2)
		if said, expected := writes(t, m, "n2", 1, step, 2, 4), fmt.Sprint("complete ", step); said != expected {
			t.Errorf("said %q: expected %q", said, expected)
		}
	}
}

// replicated is a machine under whose plan n1, n2 and n3 hold all four layers each.
func replicated(t *testing.T) *Machine {
	t.Helper()
	m := New("c", Settings{})
	plan := events.Plan{Cluster: "c", Generation: 1, Data: events.Data{GlobalBatch: 3, MicroBatch: 1}}
	var holders []events.Holder
	for _, node := range []string{"n1", "n2", "n3"} {
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 1, Stages: []events.Stage{stage(node, 0, 4)}})
		plan.Nodes, holders = append(plan.Nodes, members(node)...), append(holders, held(node, 0, 4))
	}
	hear(t, m, events.RestorationAsked, &events.RestorationRequest{Negotiation: "g1", Proposal: events.Proposal{Negotiation: "g1", Plan: plan},
		Holders: holders, Units: []int64{9, 9, 9, 9}})
	hear(t, m, events.Committed, &events.Commitment{Negotiation: "g1", Generation: 1, PlanDigest: planOf(1)})
	return m
}

func TestOneThatHoldsAllAndTellsOfStepsThatNeverComeSilencesNobody(t *testing.T) {
	m := replicated(t)
	for step := uint64(8); step < 80; step += 8 {
		writes(t, m, "n1", 1, step, 0, 2)
		writes(t, m, "n2", 1, 1<<50+step, 0, 4)
		if said, expected := writes(t, m, "n3", 1, step, 2, 4), fmt.Sprint("complete ", step); said != expected {
			t.Errorf("said %q: expected %q", said, expected)
		}
		part := &events.SnapshotPart{Node: "n1", Tier: "disk", Step: step, Plan: planOf(1), Units: []events.Range{{First: 0, End: 4}}}
		if said := hear(t, m, events.WithdrawalRequested, part); len(said) > 0 {
			t.Errorf("it lets a part of step %d go, the newest that is complete", step)
		}
	}
}

func TestAnOlderSnapshotIsNotToldBehindANewerOneOfWhichTwoTold(t *testing.T) {
	m := replicated(t)
	writes(t, m, "n1", 1, 16, 0, 4)
	writes(t, m, "n2", 1, 16, 0, 2)
	if said := writes(t, m, "n3", 1, 8, 0, 4); said != "" {
		t.Errorf("said %q of the slowest node's snapshot", said)
	}
}

// A set of units is the slow twin of ranges.
func TestRangesAreThatOfTheirUnits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	drawn := func() (ranges []events.Range) {
		for at := 0; at < 20; {
			first := at + random.IntN(4)
			at = first + 1 + random.IntN(4)
			ranges = append(ranges, events.Range{First: first, End: at})
		}
		return ranges
	}
	set := func(ranges []events.Range) (set [40]bool) {
		for unit := range events.Each(ranges) {
			set[unit] = true
		}
		return set
	}
	for range 1000 {
		a, b := drawn(), drawn()
		of, both, rest := set(a), set(common(a, b)), set(without(a, b))
		for unit, in := range set(b) {
			if both[unit] != (of[unit] && in) || rest[unit] != (of[unit] && !in) {
				t.Fatalf("unit %d of %v and %v: common %v, without %v", unit, a, b, both[unit], rest[unit])
			}
		}
	}
}

func TestHoweverManySnapshotsAPlanHasNoMoreAreRemembered(t *testing.T) {
	m, sizes := keeps(t), []int{}
	for i := range uint64(1000) {
		writes(t, m, "n1", 1, 1_000_000+i, 0, 2)
		writes(t, m, "n2", 1, 1_000_000+i, 2, 4)
		memory, err := m.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(memory))
	}
	if sizes[2*mostOpen] != sizes[999] {
		t.Errorf("after %d snapshots %d bytes are remembered, and after 1000 %d", 2*mostOpen, sizes[2*mostOpen], sizes[999])
	}
}

// withdraws has a node ask to withdraw its part, and reports whether that counts no more.
func withdraws(t *testing.T, m *Machine, node string, generation, step uint64, first, end int) bool {
	t.Helper()
	said := hear(t, m, events.WithdrawalRequested, &events.SnapshotPart{
		Node: node, Tier: "disk", Step: step, Plan: planOf(generation), Units: []events.Range{{First: first, End: end}},
	})
	return len(said) == 1 && said[0].Kind == events.SnapshotWithdrawn && said[0].Subject == node
}

func TestAPartThatIsWithdrawnCountsNoMore(t *testing.T) {
	m := keeps(t)
	writes(t, m, "n1", 1, 8, 0, 2)
	if !withdraws(t, m, "n1", 1, 8, 0, 2) {
		t.Fatal("a part of a snapshot that is not complete is not withdrawn")
	}
	if said := writes(t, m, "n2", 1, 8, 2, 4); said != "" {
		t.Errorf("said %q of a snapshot of which a half was removed", said)
	}
	if said := writes(t, m, "n1", 1, 8, 0, 2); said != "complete 8" {
		t.Errorf("said %q when it was written again", said)
	}
}

func TestNoPartOfTheNewestCompleteSnapshotIsWithdrawn(t *testing.T) {
	m := keeps(t)
	for step := uint64(8); step <= 16; step += 8 {
		writes(t, m, "n1", 1, step, 0, 2)
		writes(t, m, "n2", 1, step, 2, 4)
	}
	writes(t, m, "n1", 1, 24, 0, 2)
	pipelined(t, m, 2)
	pipelined(t, m, 3)
	if withdraws(t, m, "n2", 1, 16, 2, 4) {
		t.Error("a part of the newest complete snapshot is withdrawn, two plans later")
	}
	if !withdraws(t, m, "n2", 1, 8, 2, 4) || !withdraws(t, m, "n1", 1, 24, 0, 2) {
		t.Error("an older one, or one of a plan that is not remembered, is not withdrawn")
	}
	writes(t, m, "n1", 3, 32, 0, 2)
	writes(t, m, "n2", 3, 32, 2, 4)
	if !withdraws(t, m, "n2", 1, 16, 2, 4) || withdraws(t, m, "n2", 3, 32, 2, 4) {
		t.Error("expected the newest complete snapshot to be that of step 32")
	}
}

// A slower holder writes its part of a snapshot of the plan before once one of the plan in force is complete, and training may have gone
// back between them.
func TestASnapshotOfAnOlderPlanThatIsCompleteLateIsNotTheNewest(t *testing.T) {
	for _, late := range []uint64{8, 24} {
		m := keeps(t)
		writes(t, m, "n1", 1, late, 0, 2)
		pipelined(t, m, 2)
		writes(t, m, "n1", 2, 16, 0, 2)
		writes(t, m, "n2", 2, 16, 2, 4)
		if said := writes(t, m, "n2", 1, late, 2, 4); said != "" {
			t.Errorf("said %q of a snapshot that is complete late: who trains takes what is told last for the newest", said)
		}
		if withdraws(t, m, "n1", 2, 16, 0, 2) || !withdraws(t, m, "n1", 1, late, 0, 2) {
			t.Errorf("expected the newest complete snapshot to be that of step 16, and not of step %d under the plan before", late)
		}
	}
}
