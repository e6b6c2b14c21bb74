package restore

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/reknit/reknit/events"
	planner "github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/reknit/cluster"
)

// question is two plans, and what lies between them.
type question struct {
	from, to events.Plan
	ground
}

// question reads the files. An error names the file, the field and what was expected.
func (o options) question() (question, error) {
	var q question
	var err error
	if q.from, err = readPlan(o.from); err != nil {
		return q, err
	}
	if q.to, err = readPlan(o.to); err != nil {
		return q, err
	}
	if q.to.Cluster != q.from.Cluster {
		return q, &cluster.Fault{
			File: o.to, Field: "cluster", Expected: q.from.Cluster + ", as in " + o.from, Got: q.to.Cluster,
		}
	}
	if is, was := q.to.LayerCount(), q.from.LayerCount(); is != was {
		return q, &cluster.Fault{File: o.to, Field: "pipelines",
			Expected: fmt.Sprintf("the %d layers of %s", was, o.from), Got: fmt.Sprint(is)}
	}
	if is, was := q.to.Partitions(), q.from.Partitions(); is != was {
		expected := fmt.Sprintf("the %d partitions of the optimizer state of %s", was, o.from)
		return q, &cluster.Fault{File: o.to, Field: "pipelines", Expected: expected, Got: fmt.Sprint(is)}
	}
	q.ground, err = o.ground(q.from, q.to)
	return q, err
}

// readPlan reads a plan document.
func readPlan(path string) (events.Plan, error) {
	var plan events.Plan
	data, err := os.ReadFile(path)
	if err != nil {
		return plan, err
	}
	if data, err = withoutRestoration(data); err == nil {
		err = events.Decode(data, &plan)
	}
	if err != nil {
		return plan, fmt.Errorf("%s: expected a plan document: %w", path, err)
	}
	return plan, nil
}

// withoutRestoration empties what a restoration finds out: it may name nodes that are not there any more.
func withoutRestoration(data []byte) ([]byte, error) {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	document["sync"] = json.RawMessage(`{"rounds": []}`)
	document["migration"] = json.RawMessage(`{"moves": [], "transfers": [], "drops": [], "shardBytes": 0}`)
	return json.Marshal(document)
}

// request asks what the negotiator would, had the planner proposed the plan wanted.
func (q *question) request() events.RestorationRequest {
	unreachable := append(cluster.Unreachable(q.links), q.to.Relays...)
	job := events.Job{Layers: q.layers, OptimizerPartitions: q.to.Partitions()}
	request := events.RestorationRequest{
		Negotiation: "what-if", Holders: q.holders(), Links: q.links, Unreachable: unreachable, Current: &q.from,
		Units: job.UnitBytes(), Gradients: job.GradientBytes(),
		Proposal: events.Proposal{Negotiation: "what-if", Plan: q.to, Classes: q.classes(unreachable)},
	}
	// What the document says of its own restoration is to be found out anew.
	request.Proposal.Plan.Migration, request.Proposal.Plan.Predicted.TransitionSeconds = events.Migration{}, 0
	return request
}

// classes are the nodes that the planner would let trade places: a plan document does not keep them.
func (q *question) classes(unreachable []events.Pair) [][]string {
	request := events.PlanRequest{Job: events.Job{
		Layers: q.layers, GlobalBatch: q.to.Data.GlobalBatch, MicroBatch: q.to.Data.MicroBatch,
	}}
	for _, member := range q.to.Nodes {
		device := events.Device{Member: member, SpeedFactor: 1}
		if node, told := q.nodes[member.Node]; told {
			device.MemoryBytes, device.SpeedFactor = int64(node.memory), node.speed
		}
		request.Nodes = append(request.Nodes, device)
	}
	request.Links = slices.Clone(q.links)
	for _, pair := range unreachable {
		ends := events.Measurement{From: pair.A, To: pair.B}
		request.Links = append(request.Links, events.Link{Measurement: ends, Disconnected: true})
	}
	return planner.Settings{}.Situation(request).Classes()
}

// holders are the nodes of the plan in force that still live, with the rows of their places. A new incarnation starts
// empty.
func (q *question) holders() []events.Holder {
	var holders []events.Holder
	for _, member := range q.from.Nodes {
		rows := q.from.UnitsOf(member.Node)
		if now, lives := q.to.Member(member.Node); len(rows) > 0 && lives && now.Incarnation == member.Incarnation {
			holders = append(holders, events.Holder{Node: member.Node, Units: rows})
		}
	}
	return holders
}
