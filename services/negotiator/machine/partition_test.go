package machine

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// survives has n2 lost and n1 say what it holds: units of three layers with two partitions.
func survives(t *testing.T, holdings ...events.Holding) *world {
	w := newPartitionedWorld(t, 2, 2)
	w.deaf["n1"] = true
	w.lose("n2")
	w.run()
	under := w.opened
	w.hear(events.Consented, "/node/n1", "n1", &events.Consent{
		Negotiation: under.Negotiation, Node: "n1", Incarnation: under.Members[0].Incarnation, Accepted: true, Step: 18, Holdings: holdings,
	})
	w.run()
	return w
}

func units(first, end int, steps ...uint64) events.Holding {
	return events.Holding{Units: events.Range{First: first, End: end}, Steps: steps}
}

func TestAPartitionThatIsAStepBehindDecidesWhereTrainingGoesOn(t *testing.T) {
	w := survives(t, units(0, 5, 18, 17), units(5, 9, 17, 16))
	if plans := w.plans(); len(plans) != 2 || plans[1].ResumeStep != 17 {
		t.Fatalf("plans %+v", plans)
	}
}

func TestAPartitionNobodyHoldsHoldsTheClusterAndIsNamed(t *testing.T) {
	w := survives(t, units(0, 7, 18))
	last := w.said[len(w.said)-1]
	if last.Kind != events.ClusterHeld ||
		!strings.Contains(must[events.Hold](t, last).Reason, "holds partition 1 of layer 1, partition 1 of layer 2,") {
		t.Fatalf("last said %s: %s", last.Kind, last.Data)
	}
}

func TestHoldersThatHaveNoStepInCommonHoldTheCluster(t *testing.T) {
	w := survives(t, units(0, 3, 18), units(3, 9, 17))
	last := w.said[len(w.said)-1]
	if last.Kind != events.ClusterHeld ||
		!strings.Contains(must[events.Hold](t, last).Reason, "no step has a live holder of every layer") {
		t.Fatalf("last said %s: %s", last.Kind, last.Data)
	}
}

func TestAProposalWithoutTheJobsPartitionsIsNoPlan(t *testing.T) {
	w := newPartitionedWorld(t, 2, 2)
	w.partitions = 0 // the planner does not know of them
	w.lose("n2")
	w.run()
	last := w.said[len(w.said)-1]
	if last.Kind != events.ClusterHeld ||
		!strings.Contains(must[events.Hold](t, last).Reason, "has 3 layers and partitions of layers: expected the job's 9") {
		t.Fatalf("last said %s: %s", last.Kind, last.Data)
	}
}
