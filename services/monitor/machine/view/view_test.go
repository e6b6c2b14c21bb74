package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

// log is that of a cluster, an event every ten milliseconds.
type log struct {
	view *View
	now  time.Time
	said int
}

func newLog() *log {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	return &log{view: New("c", 0, now), now: now}
}

func (l *log) say(kind events.Kind, subject string, payload events.Payload) {
	l.now = l.now.Add(10 * time.Millisecond)
	l.said++
	event := events.Speaker{Source: "/monitor", Cluster: "c"}.First(l.now, fmt.Sprint(l.said), kind, subject, payload)
	event.Logged = l.now
	l.view.Take(event)
}

func (l *log) beat(seconds int, nodes ...string) {
	for range seconds {
		l.now = l.now.Add(time.Second)
		for _, node := range nodes {
			l.view.Pulse(events.Pulse{Node: node, Incarnation: "i", Step: uint64(l.now.Unix()) - 1795521600 + 100, StepSeconds: 1, PaceSeconds: 2,
				Loss: 2}, l.now)
		}
		l.view.Parts(l.now)
	}
}

// plan is two pipelines of two stages over n1 to n4, of four layers.
func plan(generation uint64, partitions ...[]int) events.Plan {
	plan := events.Plan{Cluster: "c", Generation: generation, Policy: "repipeline", Data: events.Data{GlobalBatch: 8, MicroBatch: 4}}
	if generation > 1 {
		plan.Parent = "p"
	}
	for p := range 2 {
		pipeline := events.Pipeline{MicroBatches: 1}
		if partitions != nil {
			pipeline.Partitions = partitions[p]
		}
		for s := range 2 {
			node := fmt.Sprint("n", 2*p+s+1)
			plan.Nodes = append(plan.Nodes, events.Member{Node: node, Incarnation: "i", Address: "a", Site: fmt.Sprint("site", p)})
			pipeline.Stages = append(pipeline.Stages, events.Stage{Node: node, Layers: events.Range{First: 2 * s, End: 2*s + 2}})
		}
		plan.Pipelines = append(plan.Pipelines, pipeline)
	}
	return plan
}

// commit has a plan negotiated and followed.
func (l *log) commit(plan events.Plan) {
	negotiation := fmt.Sprint("g", plan.Generation)
	l.open(plan)
	l.say(events.RestorationPlanned, negotiation, &events.Restoration{Negotiation: negotiation, Plan: plan})
	l.say(events.Committed, negotiation,
		&events.Commitment{Negotiation: negotiation, Generation: plan.Generation, PlanDigest: events.Digest(nil)})
	l.say(events.PlanCommitted, fmt.Sprint(plan.Generation), &plan)
	for _, member := range plan.Nodes {
		l.say(events.PlanActivated, member.Node, &events.Activation{Node: member.Node, Generation: plan.Generation})
	}
}

func (l *log) open(plan events.Plan) {
	negotiation := fmt.Sprint("g", plan.Generation)
	l.say(events.NegotiationOpened, negotiation, &events.Opening{Negotiation: negotiation, Generation: plan.Generation,
		Changes: []events.Change{{Kind: events.ChangeFailure, Node: "n9"}}, Members: plan.Nodes})
}

func (l *log) status() Status { return l.view.Parts(l.now)["now"].(Status) }

var four = []string{"n1", "n2", "n3", "n4"}

func TestTheStatusSaysWhatMattersMost(t *testing.T) {
	l := newLog()
	expect := func(level, says string) {
		t.Helper()
		if status := l.status(); status.Level != level || !strings.HasPrefix(status.Says, says) {
			t.Errorf("%s: %q, expected %s: %q", status.Level, status.Says, level, says)
		}
	}
	expect(Idle, "no plan yet")
	l.commit(plan(1))
	l.beat(10, four...)
	expect(Calm, "4 nodes train")
	l.beat(2, four[:3]...)
	expect(Calm, "4 nodes train")
	l.beat(2, four[:3]...)
	expect(Trouble, "n4 is silent: no heartbeat for 4s")
	if pace := l.status().PaceSeconds; pace != 2 {
		t.Errorf("%v s from one step to the next, expected the 2 s that heartbeats tell", pace)
	}
	l.say(events.NodeLost, "n4", &events.NodeState{Node: "n4", Incarnation: "i", Reason: "silent"})
	expect(Trouble, "n4 is lost")
	l.open(plan(2))
	expect(Busy, "failure of n9: consenting, waiting for n1 and 3 more")
	l.say(events.ClusterHeld, "c", &events.Hold{Reason: "nobody has layer 2"})
	expect(Trouble, "the cluster holds: nobody has layer 2; reknit doctor says what helps")
	if figures := l.view.Figures(l.now); !figures.Holds || figures.Older {
		t.Errorf("the figures of a cluster that holds: %+v", figures)
	}
	l.say(events.ClusterHeld, "c", &events.Hold{Reason: events.OlderLog + ": it ends at generation 1"})
	expect(Trouble, "the cluster holds: "+events.OlderLog+": it ends at generation 1")
	if figures := l.view.Figures(l.now); !figures.Holds || !figures.Older {
		t.Errorf("the figures of a cluster whose log is older: %+v", figures)
	}
	l.say(events.TrainingCompleted, "c", &events.JobEnd{Generation: 1, Step: 300, Nodes: four[:3], Digest: events.Digest(nil)})
	l.beat(30)
	expect(Idle, "the job is complete: step 300 made by 3 nodes, model digest sha256:")
	figures := l.view.Figures(l.now)
	if figures.States[overlay.Ended] != 4 || figures.Alone+figures.Bare > 0 || figures.Holds {
		t.Errorf("the figures of a complete job alarm: %+v", figures)
	}
}

func TestAPageOfATrainingThatWasStoppedTellsTheStepUntilItGoesOn(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.say(events.TrainingStopped, "c", &events.JobStop{Generation: 1, Step: 300, Tier: "disk", Plan: events.Digest(nil)})
	l.beat(30)
	if status := l.status(); status.Level != Idle || !strings.HasPrefix(status.Says, "stopped at step 300, snapshot complete at 300 (disk)") {
		t.Errorf("the page says %q", status.Says)
	}
	l.open(plan(2))
	if says := l.status().Says; strings.Contains(says, "stopped") {
		t.Errorf("while it goes on the page says %q", says)
	}
}

func TestCopiesAreToldToDifferUntilSomebodyIsRightOrAPlanComes(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	diverge := func(generation uint64, unit int, right string) {
		l.say(events.ReplicaDiverged, fmt.Sprint("unit-", unit), &events.Divergence{
			Generation: generation, Step: 100, Unit: unit, Digest: right,
			Replicas: []events.Replica{{Node: "n1", Digest: events.Digest([]byte("one"))}, {Node: "n2", Digest: events.Digest([]byte("two"))}},
		})
	}
	expect := func(units int) {
		t.Helper()
		if is := l.view.Figures(l.now).Differ; is != units {
			t.Errorf("%d units differ, expected %d", is, units)
		}
	}
	diverge(1, 0, "")
	diverge(1, 0, "")
	diverge(1, 2, "")
	expect(2)
	diverge(1, 2, events.Digest([]byte("one")))
	expect(1)
	l.commit(plan(2))
	diverge(1, 3, "") // told late
	expect(0)
}

func TestCopiesThatDifferAtTheEndAreToldForLongEnoughToBeSeenAndNoLonger(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.say(events.ReplicaDiverged, "unit-0", &events.Divergence{Generation: 1, Step: 300, Replicas: []events.Replica{
		{Node: "n1", Digest: events.Digest([]byte("one"))}, {Node: "n2", Digest: events.Digest([]byte("two"))},
	}})
	l.say(events.TrainingCompleted, "c", &events.JobEnd{Generation: 1, Step: 300, Nodes: four[:2], Differ: []events.Range{{First: 0, End: 1}}})
	for minutes, units := range map[time.Duration]int{1: 1, 20: 0} {
		if is := l.view.Figures(l.now.Add(minutes * time.Minute)).Differ; is != units {
			t.Errorf("%d minutes after the end %d units differ, expected %d", minutes, is, units)
		}
	}
}

func TestAJobThatEndsWithTwoModelsSaysSo(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.say(events.TrainingCompleted, "c", &events.JobEnd{Generation: 1, Step: 300, Nodes: four[:2], Differ: []events.Range{{First: 2, End: 3}}})
	l.beat(1)
	if says := l.status().Says; !strings.HasSuffix(says, "step 300 made by 2 nodes, and its nodes ended with different models: they differ in unit 2") {
		t.Errorf("%q", says)
	}
}

func TestThroughputIsKnownFromTheSecondSecondOfTrainingOn(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.beat(3) // nobody was heard
	l.beat(2, four...)
	if rate := l.status().Rate; rate != 8 {
		t.Errorf("%v samples a second, expected one step of 8: what was before is not known", rate)
	}
}

func TestThroughputIsWhatWasTrainedAndFallsToNothingWhenTrainingStops(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.beat(20, four...)
	if rate := l.status().Rate; rate != 8 {
		t.Errorf("%v samples a second, expected one step of 8", rate)
	}
	for range 10 {
		l.now = l.now.Add(time.Second)
		l.view.Parts(l.now)
	}
	if rate := l.status().Rate; rate != 0 {
		t.Errorf("%v samples a second while nobody steps, expected 0", rate)
	}
	l.beat(keptMinutes*60+100, "n1")
	points := 0
	for key, part := range l.view.Parts(l.now) {
		if strings.HasPrefix(key, "points/") {
			points += len(part.([]Point))
		}
	}
	if points < keptMinutes*60-1 || points > keptMinutes*60 {
		t.Errorf("%d seconds are kept, expected %d", points, keptMinutes*60)
	}
}

func TestALayerIsOneDeathFromLostWhenOneHoldsIt(t *testing.T) {
	living := map[string]bool{"n1": true, "n2": true, "n3": true, "n4": true}
	whole, parted := plan(1), plan(1, []int{0}, []int{1})
	if found := CoverageOf(&whole, living); !slices.Equal(found.Holders, []int{2, 2, 2, 2}) || len(found.Alone) != 0 {
		t.Errorf("all live: %+v", found)
	}
	living["n4"] = false
	found := CoverageOf(&whole, living)
	if !slices.Equal(found.Holders, []int{2, 2, 1, 1}) || len(found.Alone) != 1 || found.Alone[0] != (Sole{"n2", events.Range{First: 2, End: 4}, 2}) {
		t.Errorf("without n4: %+v, expected n2 alone with layers 2 and 3", found)
	}
	living["n4"] = true
	if found := CoverageOf(&parted, living); !slices.Equal(found.Holders, []int{1, 1, 1, 1}) || len(found.Alone) != 4 {
		t.Errorf("with a partition each: %+v, expected that each is the only one to hold something", found)
	}
	living["n2"], living["n4"] = false, false
	if found := CoverageOf(&whole, living); found.Holders[2] != 0 {
		t.Errorf("without n2 and n4: %+v, expected nobody with layer 2", found)
	}
}

func TestLinksOfManyAreSummedUpBySite(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.say(events.LinkMeasured, "n1_n2", &events.Measurement{From: "n1", To: "n2", RoundTripSeconds: 0.001, BandwidthBytesPerSecond: 100})
	l.say(events.LinkMeasured, "n1_n3", &events.Measurement{From: "n1", To: "n3", RoundTripSeconds: 0.01, BandwidthBytesPerSecond: 10})
	l.say(events.LinkLost, "n2_n4", &events.LinkState{From: "n2", To: "n4", Reason: "cut"})
	few := l.view.Parts(l.now)["links"].(Links)
	if few.By != "node" || len(few.Groups) != 4 || len(few.Pairs) != 3 {
		t.Errorf("of four nodes: %+v", few)
	}
	for i := range 200 {
		node := fmt.Sprint("m", i)
		l.say(events.JoinRequested, node, &events.Join{Node: node, Incarnation: "i", Address: "a", Site: "site1", MemoryBytes: 1, Job: events.Job{
			Digest: events.Digest(nil), GlobalBatch: 1, MicroBatch: 1, Layers: []events.LayerProfile{{ParameterBytes: 1, OptimizerBytes: 1, ForwardSeconds: 1, BackwardSeconds: 1}}}})
	}
	many := l.view.Parts(l.now)["links"].(Links)
	if many.By != "site" || len(many.Groups) != 2 || many.Groups[1].Nodes != 202 || len(many.Bad) != 2 {
		t.Fatalf("of 204 nodes: %+v", many)
	}
	want := Pair{A: "site0", B: "site1", RoundTripSeconds: 0.01, BytesPerSecond: 10, Measured: 1, Lost: 2}
	if !slices.Contains(many.Pairs, want) {
		t.Errorf("between the sites: %+v, expected %+v", many.Pairs, want)
	}
}

func TestBetweenSitesWhatIsUsualIsToldAndNotTheFewLinksThatAreListed(t *testing.T) {
	var nodes []overlay.Node
	for i := range 200 {
		nodes = append(nodes, overlay.Node{Node: fmt.Sprint("m", i), Site: fmt.Sprint("site", i%3)})
	}
	usual := &events.Usual{RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e8, Between: []events.Measurement{
		{From: "site0", To: "site1", RoundTripSeconds: 0.02, BandwidthBytesPerSecond: 1e6},
	}}
	slow := overlay.Link{}
	slow.Measurement = events.Measurement{From: "m0", To: "m2", RoundTripSeconds: 1, BandwidthBytesPerSecond: 1}
	want := []Pair{
		{A: "site0", B: "site1", RoundTripSeconds: 0.02, BytesPerSecond: 1e6},
		{A: "site0", B: "site2", RoundTripSeconds: 1e-3, BytesPerSecond: 1e8, Measured: 1},
	}
	if got := linksOf(nodes, []overlay.Link{slow}, usual).Pairs; !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestNothingGrowsWithTheChangesThatWere(t *testing.T) {
	l := newLog()
	sizes := map[int]int{}
	for generation := range 4 * MostChanges {
		l.commit(plan(uint64(generation + 1)))
		l.view.Pulse(events.Pulse{Node: fmt.Sprint("gone", generation), Incarnation: "i"}, l.now)
		l.now = l.now.Add(time.Minute)
		sizes[generation] = len(l.view.Parts(l.now))
	}
	if last := 4*MostChanges - 1; sizes[last] != sizes[last-MostChanges] {
		t.Errorf("%d parts after %d changes, and %d before the last %d", sizes[last], last, sizes[last-MostChanges], MostChanges)
	}
	if _, found := l.view.Detail(1, l.now); found {
		t.Error("the first change is still known")
	}
	if len(l.view.pulses) > 2 {
		t.Errorf("heartbeats of %d nodes are remembered that are gone for long", len(l.view.pulses))
	}
}

func TestADetailHasWhyThePlanIsThisOne(t *testing.T) {
	l := newLog()
	first := plan(1)
	first.Considered = []events.Candidate{{Policy: "repipeline"}, {Policy: "reroute", Rejected: "slower"}}
	l.commit(first)
	detail, found := l.view.Detail(1, l.now)
	if !found || len(detail.Considered) != 2 || detail.What != "failure of n9" {
		t.Errorf("%v, %+v", found, detail)
	}
	if data, err := json.Marshal(detail); err != nil || !strings.Contains(string(data), `"rejected":"slower"`) {
		t.Errorf("%s, %v", data, err)
	}
	if _, found := l.view.Detail(7, l.now); found {
		t.Error("generation 7, which there is not, is told")
	}
}

func TestSnapshotsThatAreLateAreTrouble(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.beat(8, four...)
	for _, step := range []uint64{1, 2} {
		l.say(events.SnapshotCompleted, "disk", &events.CompleteSnapshot{Tier: "disk", Step: step, Plan: events.Digest(nil)})
	}
	figures := l.view.Figures(l.now)
	if step := figures.Step; step <= 10 {
		t.Fatalf("the log of the test stands at step %d", step)
	}
	if !figures.Late["disk"] || figures.Level != Trouble || !strings.HasPrefix(figures.Says, "no snapshot is complete in disk since step 2") {
		t.Errorf("%s: %s, late %v, age %v", figures.Level, figures.Says, figures.Late, figures.Age)
	}
	l.say(events.SnapshotCompleted, "disk", &events.CompleteSnapshot{Tier: "disk", Step: figures.Step, Plan: events.Digest(nil)})
	if figures = l.view.Figures(l.now); figures.Late["disk"] || figures.Level != Calm {
		t.Errorf("%s: %s, late %v", figures.Level, figures.Says, figures.Late)
	}
	if age := figures.Age["disk"]; age < 0 || age > 60 {
		t.Errorf("it is %v s old", age)
	}
}

func TestAPageNamesWhoCannotWriteSnapshots(t *testing.T) {
	l := newLog()
	l.commit(plan(1))
	l.beat(30, four...)
	l.say(events.SnapshotFailed, "n2", &events.SnapshotFailure{Node: "n2", Tier: "disk", Step: 20, Plan: events.Digest(nil),
		Units: []events.Range{{End: 1}}, Finding: "read-only", Reason: "read-only file system", Tiers: []string{"disk"}})
	if status := l.status(); status.Level != Trouble || !strings.HasPrefix(status.Says, "n2 cannot write snapshots to disk since ") {
		t.Errorf("the page says %q", status.Says)
	}
}
