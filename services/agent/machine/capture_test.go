package machine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// keepsSnapshots has a node take them to its disk every two steps, and to the bucket of all every four.
func keepsSnapshots(settings *Settings) {
	settings.Tiers = []Tier{{DiskTier, 2}, {RemoteTier, 4}}
}

func TestASnapshotIsTakenOfEveryStepThatIsDueBeforeTrainingGoesOn(t *testing.T) {
	n := trainingNode(t, 10, keepsSnapshots)
	n.stands(11)
	n.expect("train under 3")
	n.stands(12)
	n.expect("capture at 12: disk [{0 2}] remote [{0 1}]", "train under 3")
	n.stands(13)
	n.stands(14)
	n.expect("train under 3", "capture at 14: disk [{0 2}]", "train under 3")
}

// Its part was told twice, with other units: the other holders write since those of who was silent (seed 98219).
func TestAStepAtWhichTheTrainerStandsAgainIsNotCapturedAgain(t *testing.T) {
	n := trainingNode(t, 11, keepsSnapshots)
	n.stands(12)
	n.expect("capture at 12: disk [{0 2}] remote [{0 1}]", "train under 3")
	n.hears(events.SnapshotOverdue, &events.OverdueSnapshot{Tier: RemoteTier, Step: 8, Plan: n.machine.plan.digest, Units: []events.Range{{First: 1, End: 2}}})
	n.stands(12)
	n.expect("train under 3")
	n.stands(13)
	n.stands(14)
	n.stands(15)
	n.stands(16)
	n.expect("train under 3", "capture at 14: disk [{0 2}]", "train under 3", "train under 3",
		"capture at 16: disk [{0 2}] remote [{0 1} {1 2}]", "train under 3")
}

func TestTheStepThatAPlanResumesAtIsNotCaptured(t *testing.T) {
	n := newNode(t, keepsSnapshots)
	n.commits(plan(3, 12, "n1", "n2"))
	n.told = nil
	n.stands(0)
	n.expect("adopt [{0 2}] at 12", "train under 3, new")
}

// completes has the trainer complete a step with a loss that is finite or not, and stand behind it.
func (n *node) completes(step uint64, finite bool) {
	n.machine.Loss(step, finite)
	n.do(n.machine.Completed(now, step, 1))
	n.told = nil // what it says of the plan's first step
	n.stands(step)
}

// A job whose loss was NaN went on to take snapshots, and each pushed out one that was good.
func TestOfAStateWhoseLossIsNotFiniteNoSnapshotIsTaken(t *testing.T) {
	n := trainingNode(t, 11, keepsSnapshots)
	n.completes(12, true)
	n.expect("capture at 12: disk [{0 2}] remote [{0 1}]", "train under 3")
	for step := uint64(13); step <= 20; step++ {
		n.completes(step, false)
		n.expect("train under 3")
	}
	if since := n.machine.Snapshot().Diverged; since != 13 {
		t.Errorf("its loss is not finite since step %d: expected 13", since)
	}
	n.completes(21, true)
	n.expect("train under 3")
	n.completes(22, true)
	n.expect("capture at 22: disk [{0 2}]", "train under 3")
}

func TestASnapshotFromBeforeTheLossWasNotFiniteMakesItFiniteAgain(t *testing.T) {
	n := trainingNode(t, 13, keepsSnapshots)
	n.completes(14, false)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.stands(14)
	n.commits(plan(4, 12, "n1", "n2"))
	if since := n.machine.Snapshot().Diverged; since != 0 {
		t.Errorf("training went back to step 12, and the loss is not finite since step %d", since)
	}
}

func TestWhoGivesUpItsStepTakesNoSnapshot(t *testing.T) {
	n := trainingNode(t, 11, keepsSnapshots)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.told = nil
	n.stands(12)
	n.expect("tell holdings", "say negotiation.consented g4 true at 12: 0 holdings")
}

func TestOfEachUnitOneHolderWritesToTheTierThatAllRead(t *testing.T) {
	writers := map[int][]string{}
	for _, name := range []string{"n1", "n2", "n3"} {
		m := New(Settings{Node: name})
		shared := plan(1, 0, "n1", "n2", "n3")
		m.plan = &committed{plan: &shared}
		for unit := range events.Each(m.shareOf(Tier{RemoteTier, 1})) {
			writers[unit] = append(writers[unit], name)
		}
	}
	if !slices.Equal(writers[0], []string{"n1"}) || !slices.Equal(writers[1], []string{"n2"}) {
		t.Errorf("who writes which unit: %v: expected the holders in turn, one each", writers)
	}
}

// overdue has machines hear that nobody wrote units of a snapshot.
func overdue(step uint64, plan string, units ...int) events.Event {
	late := &events.OverdueSnapshot{Tier: RemoteTier, Step: step, Plan: plan}
	for _, unit := range units {
		late.Units = append(late.Units, events.Range{First: unit, End: unit + 1})
	}
	return events.Speaker{Source: "/restorer", Cluster: "c"}.First(time.Unix(1, 0), "late", events.SnapshotOverdue, RemoteTier, late)
}

func TestWhatAWriterDoesNotWriteTheNextHolderWrites(t *testing.T) {
	shared := plan(1, 0, "n1", "n2", "n3")
	digest := events.Digest([]byte("plan"))
	writers := func(heard ...events.Event) string {
		writers := map[int][]string{}
		for _, name := range []string{"n1", "n2", "n3"} {
			m := New(Settings{Node: name, Tiers: []Tier{{RemoteTier, 4}}})
			m.plan = &committed{plan: &shared, digest: digest}
			for _, event := range heard {
				if _, err := m.Handle(event); err != nil {
					t.Fatal(err)
				}
			}
			for unit := range events.Each(m.shareOf(m.settings.Tiers[0])) {
				writers[unit] = append(writers[unit], name)
			}
		}
		return fmt.Sprint(writers)
	}
	for _, c := range []struct {
		heard []events.Event
		want  string
	}{
		{nil, "map[0:[n1] 1:[n2]]"},
		{[]events.Event{overdue(8, digest, 1)}, "map[0:[n1] 1:[n3]]"},
		{[]events.Event{overdue(8, digest, 1), overdue(12, digest, 1), overdue(16, digest, 1)}, "map[0:[n1] 1:[n3]]"}, // n2's turns, too
		{[]events.Event{overdue(8, digest, 1), overdue(20, digest, 1)}, "map[0:[n1] 1:[n1]]"},
		{[]events.Event{overdue(8, digest, 0, 1), overdue(20, digest, 0)}, "map[0:[n1] 1:[n2]]"}, // all are silent: all are asked
		{[]events.Event{overdue(8, events.Digest(nil), 1)}, "map[0:[n1] 1:[n2]]"},                // of another plan
	} {
		if got := writers(c.heard...); got != c.want {
			t.Errorf("after %d late snapshots the writers are %s: expected %s", len(c.heard), got, c.want)
		}
	}
}

func TestASnapshotIsTakenWithWhatIsKnownToBeComplete(t *testing.T) {
	n := trainingNode(t, 10, keepsSnapshots)
	plan := events.Digest([]byte("plan"))
	for step := uint64(2); step <= 40; step += 2 {
		n.hears(events.SnapshotCompleted, &events.CompleteSnapshot{Tier: DiskTier, Step: step, Plan: plan})
		n.hears(events.SnapshotCompleted, &events.CompleteSnapshot{Tier: DiskTier, Step: step, Plan: plan}) // again
	}
	n.machine.done = 12
	n.machine.captureDue()
	taken, _ := n.machine.actions[len(n.machine.actions)-1].(Capture)
	complete := taken.Complete[DiskTier]
	if len(complete) != mostTold || complete[0] != (retention.ID{Step: 40, Plan: plan}) || len(taken.Complete[RemoteTier]) > 0 {
		t.Errorf("complete are %v", taken.Complete)
	}
}

// placed is a plan of two pipelines: n1 and n3 hold layer 0, n2 and n4 layer 1.
func placed() events.Plan {
	p := plan(1, 0, "n1", "n2", "n3", "n4")
	p.Pipelines = nil
	for _, names := range [][]string{{"n1", "n2"}, {"n3", "n4"}} {
		pipeline := events.Pipeline{MicroBatches: 2}
		for layer, name := range names {
			pipeline.Stages = append(pipeline.Stages,
				events.Stage{Node: name, Layers: events.Range{First: layer, End: layer + 1}})
		}
		p.Pipelines = append(p.Pipelines, pipeline)
	}
	return p
}

func TestCopiesInMemoryAreWithNodesThatHoldNoneOfTheUnitsEachWithAnother(t *testing.T) {
	apart, alike := placed(), plan(1, 0, "n1", "n2", "n3")
	for _, c := range []struct {
		plan *events.Plan
		want map[string]string
	}{
		{&apart, map[string]string{"n1": "n2", "n3": "n4", "n2": "n1", "n4": "n3"}},
		{&alike, map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}},
	} {
		for node, want := range c.want {
			m := New(Settings{Node: node})
			m.plan = &committed{plan: c.plan}
			if got := m.neighbour(); got != want {
				t.Errorf("%s is copied to %q: expected %s", node, got, want)
			}
		}
	}
	alone := plan(1, 0, "n1")
	m := New(Settings{Node: "n1"})
	if m.plan = (&committed{plan: &alone}); m.neighbour() != "" {
		t.Error("a node alone has a neighbour")
	}
}

func TestAMemberThatIsAskedTellsWhatItCanReadOfSnapshots(t *testing.T) {
	n := trainingNode(t, 11, keepsSnapshots)
	asks := opening("g4", 4, true, "n1", "n2")
	asks.Snapshots = true
	n.hears(events.NegotiationOpened, asks)
	n.told = nil
	n.stands(11)
	n.expect("tell holdings and snapshots", "say negotiation.consented g4 true at 11: 0 holdings, 1 snapshots")
}

func TestANewcomerTellsItsSnapshotsThoughItHoldsNothing(t *testing.T) {
	n := newNode(t, keepsSnapshots)
	n.stands(0)
	n.holds = []events.Holding{{Units: events.Range{End: 2}, Steps: []uint64{0}}}
	asks := opening("g4", 4, true, "n1", "n2")
	asks.Snapshots = true
	n.hears(events.NegotiationOpened, asks)
	n.expect("tell holdings and snapshots", "say negotiation.consented g4 true at 0: 0 holdings, 1 snapshots")
}

func TestWhoHasNoTierIsNotHeldUpByTheQuestion(t *testing.T) {
	n := newNode(t)
	n.stands(0)
	asks := opening("g4", 4, true, "n1", "n2")
	asks.Snapshots = true
	n.hears(events.NegotiationOpened, asks)
	n.expect("say negotiation.consented g4 true at 0: 0 holdings")
}

func TestUnitsOfASnapshotAreReadFromIt(t *testing.T) {
	n := trainingNode(t, 14)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.stands(14)
	back := plan(4, 12, "n1", "n2")
	back.Snapshot = events.Digest([]byte("plan"))
	back.Migration.Transfers = []events.Transfer{{
		Unit: 1, To: "n1", Bytes: 4, Sources: []events.Source{{Node: "n1", Shards: events.Range{End: 1}}},
	}}
	n.told = nil
	n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: back})
	n.expect("open g4", "export 1 at 12 from a snapshot")
}

func TestWhatBecameOfAPartIsAsTheLogSays(t *testing.T) {
	n := trainingNode(t, 10, keepsSnapshots)
	id := func(step uint64) retention.ID { return retention.ID{Step: step, Plan: events.Digest([]byte("plan"))} }
	part := func(node string, step uint64) *events.SnapshotPart {
		return &events.SnapshotPart{Node: node, Tier: DiskTier, Step: step, Plan: id(step).Plan, Units: []events.Range{{End: 2}}}
	}
	n.hears(events.SnapshotCompleted, &events.CompleteSnapshot{Tier: DiskTier, Step: 2, Plan: id(2).Plan})
	n.hears(events.SnapshotWithdrawn, part("n1", 4))
	n.hears(events.SnapshotWithdrawn, part("n2", 6))
	for step, want := range map[uint64]Fate{2: Complete, 4: Withdrawn, 6: Undecided} {
		if got := n.machine.Fate(DiskTier, id(step)); got != want {
			t.Errorf("at step %d its fate is %d: expected %d", step, got, want)
		}
	}
	if got := n.machine.Fate(RemoteTier, id(2)); got != Undecided {
		t.Errorf("in another tier its fate is %d", got)
	}
}
