package machine

import (
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
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

func TestTheStepThatAPlanResumesAtIsNotCaptured(t *testing.T) {
	n := newNode(t, keepsSnapshots)
	n.commits(plan(3, 12, "n1", "n2"))
	n.told = nil
	n.stands(0)
	n.expect("adopt [{0 2}] at 12", "train under 3, new")
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
