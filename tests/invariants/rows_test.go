package invariants

import (
	"testing"

	"github.com/reknit/reknit/events"
)

// partitioned tells of a job whose optimizer state is cut in two, with one pipeline for each node: n1 keeps partition 0
// and n2 partition 1, n3 joins and receives both, n1 is lost and n2 receives partition 0 in its place. Rows 0 to 3 are
// the layers' parameters, rows 4 to 7 are partition 0 and rows 8 to 11 partition 1 of them.
func partitioned(t *testing.T) *story {
	s := &story{t: t, partitions: 2}
	s.join("n1")
	cause := s.join("n2")
	cause = s.open("g1", 1, cause, events.Change{Kind: events.ChangeJoin, Node: "n2"}, "n1", "n2")
	for _, node := range []string{"n1", "n2"} {
		s.consent("g1", node, cause, events.Range{First: 0, End: 12}, 0)
	}
	s.commit("g1", s.keeping(1, 0, map[string][]int{"n1": {0}, "n2": {1}}), cause)

	join := s.join("n3")
	cause = s.open("g2", 2, join, events.Change{Kind: events.ChangeJoin, Node: "n3"}, "n1", "n2", "n3")
	s.consent("g2", "n1", cause, events.Range{First: 0, End: 8}, 9)
	s.consentInParts("g2", "n2", cause, 9)
	s.consent("g2", "n3", cause, events.Range{First: 0, End: 12})
	for row := range 12 {
		from := "n1"
		if row >= 8 {
			from = "n2"
		}
		cause = s.move("g2", row, 9, from, "n3")
	}
	s.commit("g2", s.keeping(2, 9, map[string][]int{"n1": {0}, "n2": {1}, "n3": {0, 1}}), cause)

	lost := s.say("/monitor", events.NodeLost, "n1", &events.NodeState{Node: "n1", Incarnation: "n1-1", Reason: "silent"},
		"")
	cause = s.open("g3", 3, lost, events.Change{Kind: events.ChangeFailure, Node: "n1"}, "n2", "n3")
	s.consentInParts("g3", "n2", cause, 14)
	s.consent("g3", "n3", cause, events.Range{First: 0, End: 12}, 14)
	for row := 4; row < 8; row++ {
		cause = s.move("g3", row, 14, "n3", "n2")
	}
	s.commit("g3", s.keeping(3, 14, map[string][]int{"n2": {0, 1}, "n3": {0, 1}}), cause)
	s.digested("n2", 20, 0, 12)
	s.digested("n3", 20, 0, 12)
	return s
}

// keeping is a plan with a pipeline for each node, which keeps the partitions named.
func (s *story) keeping(generation, step uint64, partitions map[string][]int) *events.Plan {
	var stages [][]events.Stage
	var kept [][]int
	for _, node := range []string{"n1", "n2", "n3"} {
		if list := partitions[node]; len(list) > 0 {
			stages, kept = append(stages, []events.Stage{stage(node, 0, 4)}), append(kept, list)
		}
	}
	plan := s.plan(generation, step, stages...)
	for i := range plan.Pipelines {
		plan.Pipelines[i].Partitions = kept[i]
	}
	return plan
}

// consentInParts says that a node holds the layers and partition 1 at a step.
func (s *story) consentInParts(id, node, cause string, step uint64) {
	s.consent(id, node, cause, events.Range{First: 0, End: 4}, step)
	retell(s, len(s.lines)-1, func(consent *events.Consent) {
		consent.Holdings = append(consent.Holdings,
			events.Holding{Units: events.Range{First: 8, End: 12}, Steps: []uint64{step}})
	})
}

func TestAGoodLogWithPartitionsPasses(t *testing.T) {
	for _, violation := range partitioned(t).read().Check() {
		t.Error(violation)
	}
}

// partitionFaults are planted one at a time in the log with partitions.
var partitionFaults = map[string]fault{
	"a partition is kept that was never received": {Verified,
		func(s *story) { s.remove(lastOf(s, events.ShardReceived)) }},
	"a partition is given to a node that keeps another": {Verified, func(s *story) {
		s.replan(2, func(p *events.Plan) { p.Pipelines[0].Partitions, p.Pipelines[1].Partitions = []int{1}, []int{0} })
	}},
	"a node claims a partition that it never had": {Verified, func(s *story) {
		retell(s, lastOf(s, events.NegotiationOpened)+1,
			func(consent *events.Consent) { consent.Holdings[1].Units.First = 7 })
	}},
	"a partition has no holder": {sound, func(s *story) {
		s.replan(2, func(p *events.Plan) { p.Pipelines[0].Partitions, p.Pipelines[2].Partitions = nil, []int{1} })
	}},
	"the last partition has no holder": {sound, func(s *story) {
		s.replan(3, func(p *events.Plan) { p.Pipelines[0].Partitions, p.Pipelines[1].Partitions = []int{0}, []int{0} })
	}},
	"a plan forgets the partitions": {sound, func(s *story) {
		s.replan(3, func(p *events.Plan) { p.Pipelines[0].Partitions, p.Pipelines[1].Partitions = nil, nil })
	}},
	"a pipeline names a partition twice": {sound, func(s *story) {
		s.replan(3, func(p *events.Plan) { p.Pipelines[0].Partitions = []int{0, 1, 1} })
	}},
	"holders of a partition disagree": {OneDigest, func(s *story) {
		retell(s, lastOf(s, events.TrainingDigested), func(d *events.Digests) { d.Units[11].Digest = events.Digest(nil) })
	}},
	"a partition is received in place of another": {OneDigest, func(s *story) {
		retell(s, lastOf(s, events.ShardReceived), func(receipt *events.Receipt) { receipt.Units[0].Unit = 11 })
	}},
}

func TestEachPlantedFaultOfPartitionsIsCaughtByItsInvariant(t *testing.T) {
	expectCaught(t, partitioned, partitionFaults)
}

func TestAViolationNamesThePartition(t *testing.T) {
	s := partitioned(t)
	s.remove(lastOf(s, events.ShardReceived))
	const says = "n2 keeps partition 0 of layer 3 from step 14 on, but neither held nor received it"
	if found := Verified.Check(s.read()); len(found) != 1 || found[0].What != says {
		t.Errorf("got %v, expected %q", found, says)
	}
}
