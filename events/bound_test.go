package events

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

const longID, longDigest = 56, "sha256:"

func nodeOf(i int) string    { return fmt.Sprintf("U%0*d", longID-1, i) }
func digestOf(i int) string  { return fmt.Sprintf("%s%064x", longDigest, i) }
func each(count int) []int   { return make([]int, count) }
func nodesOf(n int) []string { return list(n, nodeOf) }
func third(i int) float64    { return 1 / (3 + float64(i)) }
func bigUnit(i int) int64    { return 1<<47 - int64(i) }
func list[T any](n int, of func(i int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = of(i)
	}
	return all
}

// planOfMany is a plan of MostNodes nodes in pipelines of eight stages over 4,096 layers, in which every second node takes two units.
func planOfMany() *Plan {
	plan := &Plan{Cluster: "opticks", Generation: 1 << 40, Parent: digestOf(1), Policy: "repipeline", Data: Data{GlobalBatch: 1 << 16}}
	plan.Predicted.PeakBytes = map[string]int64{}
	plan.Nodes = list(MostNodes, func(i int) Member {
		return Member{Node: nodeOf(i), Incarnation: "0123456789abcdef-1", Address: "trainer-1234.opticks.svc.cluster.local:40000",
			ShardAddress: "trainer-1234.opticks.svc.cluster.local:40001", Name: "trainer-1234", Site: "hospital-12", PreCopies: true}
	})
	var round Round
	for p := range each(MostNodes / 8) {
		pipeline := Pipeline{MicroBatches: 4, Samples: Range{p * 256, p*256 + 256}}
		for s := range each(8) {
			node := nodeOf(p*8 + s)
			pipeline.Stages = append(pipeline.Stages, Stage{node, Range{s * 512, s*512 + 512}})
			plan.Migration.Moves = append(plan.Migration.Moves, Move{node, Place{p, s}})
			plan.Migration.Drops = append(plan.Migration.Drops, Drop{node, s*512 + 511})
			plan.Predicted.PeakBytes[node] = bigUnit(s)
			plan.Migration.Transfers = append(plan.Migration.Transfers, Transfer{Unit: s, To: node, Bytes: bigUnit(s),
				Sources: []Source{{nodeOf(s), Range{0, 128}, 1e9 * third(s)}, {nodeOf(s + 8), Range{128, 256}, 1e9 * third(p)}}})
		}
		plan.Pipelines = append(plan.Pipelines, pipeline)
	}
	for s := range each(3 * 8) { // pipelines differ in where they are cut
		round.Groups = append(round.Groups, Group{Range{s, s + 1}, nodesOf(MostNodes / 8)})
	}
	plan.Sync.Rounds = []Round{round}
	return plan
}

// singly are all units, each told as a range of its own, as the schema allows.
var singly = list(MostUnits, func(i int) Range { return Range{i, i + 1} })

// greatest is the most that a node of such a cluster has to say.
var greatest = map[Kind]Payload{
	JoinRequested: &Join{Node: nodeOf(1), Neighbours: nodesOf(64), Job: Job{Layers: list(MostUnits, func(i int) LayerProfile {
		return LayerProfile{bigUnit(i), bigUnit(i), bigUnit(i), bigUnit(i), bigUnit(i), third(i), third(i)}
	})}},
	NodeProfiled: &Profile{Node: nodeOf(1), Layers: list(MostUnits, func(i int) LayerCost {
		return LayerCost{third(i), third(i), bigUnit(i)}
	})},
	ShardOffered: &Offer{Node: nodeOf(1), Digest: digestOf(1), Parts: list(14000, func(i int) Part {
		return Part{digestOf(i), int64(i) * BlockBytes, int64(i+1) * BlockBytes}
	})},
	ShardReceived: &Receipt{Node: nodeOf(1), Units: list(MostUnits, func(i int) ReceivedUnit {
		return ReceivedUnit{i, MostWhole, digestOf(i), bigUnit(i)}
	}), Sources: list(MostNodes, func(i int) Received {
		return Received{From: nodeOf(i), Bytes: bigUnit(i), BytesPerSecond: 1e9 * third(i)}
	})},
	RestorationFailed: &Failure{Node: nodeOf(1), Reason: strings.Repeat("x", mostReason), Givers: nodesOf(MostNodes), Units: singly[:64]},
	TrainingDigested:  &Digests{Node: nodeOf(1), Units: list(MostUnits, func(i int) UnitDigest { return UnitDigest{i, digestOf(i)} })},
	SnapshotFailed: &SnapshotFailure{Node: nodeOf(1), Tier: "remote", Step: MostWhole, Plan: digestOf(1), Units: singly,
		Finding: "read-only", Reason: strings.Repeat("<", mostReason), Tiers: []string{"disk", "remote"}},
	SnapshotResumed:     &SnapshotPart{Node: nodeOf(1), Tier: "remote", Step: MostWhole, Plan: digestOf(1), Units: singly},
	SnapshotWritten:     &SnapshotPart{Node: nodeOf(1), Tier: "remote", Step: MostWhole, Plan: digestOf(1), Units: singly},
	WithdrawalRequested: &SnapshotPart{Node: nodeOf(1), Tier: "remote", Step: MostWhole, Plan: digestOf(1), Units: singly},
	StepBroken:          &BrokenStep{Node: nodeOf(1), Reason: strings.Repeat("x", mostReason), Outvoted: nodesOf(256)},
}

var greatestConsents = []*Consent{
	{Node: nodeOf(1), Plan: planOfMany()},
	{Node: nodeOf(1), Claims: list(2*MostUnits, func(i int) Claim { return Claim{i, MostWhole, digestOf(i)} }),
		Holdings: list(MostUnits, func(i int) Holding {
			return Holding{Units: Range{i, i + 1}, Steps: []uint64{MostWhole, MostWhole - 1}}
		}),
		Snapshots: list(MostSnapshots, func(int) Snapshot { return Snapshot{Plan: digestOf(1), Units: make([]Range, 256)} }),
		Measurements: list(MostNodes, func(i int) Measurement {
			return Measurement{nodeOf(1), nodeOf(i), third(i), 1e9 * third(i), third(i)}
		})},
}

func TestWhatANodeOfALargeClusterHasToSayIsWithinItsBound(t *testing.T) {
	all := map[string]Payload{}
	for kind, payload := range greatest {
		all[string(kind)] = payload
	}
	for i, consent := range greatestConsents {
		all[fmt.Sprint(Consented, " ", i)] = consent
	}
	for name, payload := range all {
		data, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := strings.Cut(name, " ")
		t.Logf("%s: %d bytes, %d values", name, len(data), Values(data))
		if err := BoundOf(Kind(kind), NodeSource("n1")).Check(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServicesMaySayMoreThanNodesAndUsers(t *testing.T) {
	for _, row := range Catalogue {
		service, node := BoundOf(row.Kind, "/negotiator"), BoundOf(row.Kind, NodeSource("n1"))
		if service.Bytes != MaxPayloadBytes || node.Bytes > 8<<20 || BoundOf(row.Kind, "/user").Bytes > MaxEventBytes {
			t.Errorf("%s: of a service %v, of a node %v", row.Kind, service, node)
		}
		if _, isMore := ofNodes[row.Kind]; isMore && !row.Authorised(NodeSource("n1")) {
			t.Errorf("%s has a bound of nodes, none of which may say it", row.Kind)
		}
	}
}

func TestValuesAreCountedOutsideOfTexts(t *testing.T) {
	for text, expected := range map[string]int{
		`1`: 1, `{}`: 2, `{"a":1,"b":[1,2,3]}`: 6, `"[[,{\",\\"`: 1, `["\\",1]`: 3, `["`: 2, `"\`: 1, ``: 1,
	} {
		if got := Values([]byte(text)); got != expected {
			t.Errorf("%s: %d values, expected %d", text, got, expected)
		}
	}
}

// tiny are the least elements of each list in a node's payload that takes much memory when it is read.
var tiny = map[Kind][]string{
	Consented: {`"holdings":[{}`, `"claims":[{}`, `"snapshots":[{}`, `"measurements":[{}`, `"refuses":[""`,
		`"plan":{"nodes":[{}`, `"plan":{"considered":[{}`, `"plan":{"pipelines":[{}`, `"plan":{"migration":{"transfers":[{}`,
		`"plan":{"pipelines":[{"partitions":[0`},
	ShardOffered:  {`"parts":[{}`},
	ShardReceived: {`"units":[{}`, `"sources":[{}`},
	JoinRequested: {`"job":{"layers":[{}`},
}

func TestFewBytesTakeNoMoreMemoryThanTheBoundOfValuesHolds(t *testing.T) {
	const valueBytes = 512 // of all that is allocated on the way, though not at a time
	for kind, lists := range tiny {
		for _, text := range lists {
			bound := BoundOf(kind, NodeSource("n1"))
			element := text[strings.LastIndex(text, "[")+1:]
			count := min(bound.Values-16-strings.Count(text, "{"), bound.Bytes/4) / max(1, Values([]byte(element)))
			data := []byte("{" + text + strings.Repeat(","+element, count-1) + closing(text) + "}")
			if err := bound.Check(data); err != nil {
				t.Fatal(kind, text, err)
			}
			row, _ := kind.Row()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := Decode(data, row.New())
			runtime.ReadMemStats(&after)
			took := after.TotalAlloc - before.TotalAlloc
			t.Logf("%s %s: %d bytes, %d values, %d MiB allocated: %.80v", kind, text, len(data), Values(data), took>>20, err)
			if took > uint64(bound.Values)*valueBytes {
				t.Errorf("%s %s: %d bytes allocated, expected %d for each of %d values", kind, text, took, valueBytes, bound.Values)
			}
		}
	}
}

// closing closes what is open in the beginning of an object.
func closing(text string) string {
	var open []byte
	for _, c := range []byte(text) {
		switch c {
		case '{':
			open = append(open, '}')
		case '[':
			open = append(open, ']')
		case '}', ']':
			open = open[:len(open)-1]
		}
	}
	for i, j := 0, len(open)-1; i < j; i, j = i+1, j-1 {
		open[i], open[j] = open[j], open[i]
	}
	return string(open)
}
