package invariants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// story writes a log by hand: a small cluster of one job with four layers and a batch of six samples.
type story struct {
	t     *testing.T
	lines []line
	chain string // digest of the plan before

	partitions int // of the job's optimizer state
}

const cluster = "opticks"

var begin = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// say appends an event of a source and returns its id.
func (s *story) say(source string, kind events.Kind, subject string, payload events.Payload, cause string) string {
	s.t.Helper()
	speaker := events.Speaker{Source: source, Cluster: cluster}
	event := speaker.First(begin, cause+fmt.Sprint(len(s.lines)), kind, subject, payload)
	event.Cause = cause
	s.append(event)
	return event.ID
}

func (s *story) append(event events.Event) {
	s.t.Helper()
	message := line{Stream: events.EventStream.Name, Subject: event.SubjectName(),
		Logged: begin.Add(time.Duration(len(s.lines)) * time.Second)}
	if event.Kind == events.PlanCommitted {
		message.Stream = events.PlanStream.Name
	}
	message.Sequence = 1
	for _, before := range s.lines {
		if before.Stream == message.Stream {
			message.Sequence++
		}
	}
	message.Event = s.encode(envelope{
		SpecVersion: "1.0", ID: event.ID, Type: event.Kind.Type(), Source: event.Source, Subject: event.Subject,
		Cluster: event.Cluster, Cause: event.Cause, Traceparent: event.Traceparent, Time: event.Time, Data: event.Data,
	})
	s.lines = append(s.lines, message)
}

func (s *story) encode(value any) json.RawMessage {
	s.t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		s.t.Fatal(err)
	}
	return data
}

func (s *story) node(node string, kind events.Kind, subject string, payload events.Payload, cause string) string {
	s.t.Helper()
	return s.say(events.NodeSource(node), kind, subject, payload, cause)
}

func (s *story) join(node string) string {
	layer := events.LayerProfile{ParameterBytes: 100, OptimizerBytes: 200}
	return s.node(node, events.JoinRequested, node, &events.Join{
		Node: node, Incarnation: node + "-1", Address: node + ":1", MemoryBytes: 1200,
		Job: events.Job{
			Digest: events.Digest([]byte("job")), Layers: []events.LayerProfile{layer, layer, layer, layer}, GlobalBatch: 6, MicroBatch: 1,
			OptimizerPartitions: s.partitions,
		},
	}, "")
}

// stage is a node and the layers it trains.
func stage(node string, first, end int) events.Stage {
	return events.Stage{Node: node, Layers: events.Range{First: first, End: end}}
}

func members(nodes ...string) []events.Member {
	var list []events.Member
	for _, node := range nodes {
		list = append(list, events.Member{Node: node, Incarnation: node + "-1", Address: node + ":1"})
	}
	return list
}

// plan returns a plan with one pipeline for each list of stages.
func (s *story) plan(generation, step uint64, pipelines ...[]events.Stage) *events.Plan {
	plan := &events.Plan{
		Cluster: cluster, Generation: generation, Parent: s.chain, Policy: "repipeline", ResumeStep: step,
		Data:      events.Data{GlobalBatch: 6, MicroBatch: 1, ConsumedSamples: 6 * step},
		Predicted: events.Predicted{PeakBytes: map[string]int64{}},
	}
	for _, stages := range pipelines {
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 6 / len(pipelines), Stages: stages})
		for _, stage := range stages {
			plan.Nodes = append(plan.Nodes, members(stage.Node)...)
			plan.Predicted.PeakBytes[stage.Node] = int64(300 * stage.Layers.Count())
		}
	}
	return plan
}

func (s *story) open(id string, generation uint64, cause string, change events.Change, nodes ...string) string {
	change.Cause = cause
	return s.say("/negotiator", events.NegotiationOpened, id, &events.Opening{
		Negotiation: id, Generation: generation, Changes: []events.Change{change}, Members: members(nodes...),
		Abandon: change.Kind == events.ChangeFailure,
	}, cause)
}

// consent says that a node holds layers at the given steps.
func (s *story) consent(id, node string, cause string, layers events.Range, steps ...uint64) string {
	consent := &events.Consent{Negotiation: id, Node: node, Incarnation: node + "-1", Accepted: true}
	if len(steps) > 0 {
		consent.Step = steps[0]
		consent.Holdings = []events.Holding{{Units: layers, Steps: steps}}
	}
	return s.node(node, events.Consented, id, consent, cause)
}

func (s *story) commit(id string, plan *events.Plan, cause string) {
	speaker := events.Speaker{Source: "/negotiator", Cluster: cluster}
	event := speaker.First(begin, cause, events.PlanCommitted, fmt.Sprint(plan.Generation), plan)
	event.Cause = cause
	s.chain = events.Digest(event.Data)
	s.say("/negotiator", events.Committed, id,
		&events.Commitment{Negotiation: id, Generation: plan.Generation, PlanDigest: s.chain}, cause)
	s.append(event)
	for _, member := range plan.Nodes {
		if _, placed := plan.Holds(member.Node); placed {
			s.node(member.Node, events.PlanActivated, member.Node, &events.Activation{
				Node: member.Node, Generation: plan.Generation, Step: plan.ResumeStep + 1,
			}, "")
		}
	}
}

func contentOf(layer int, step uint64) string {
	return events.Digest(fmt.Appendf(nil, "layer %d at step %d", layer, step))
}

// start lets a layer move from one node to another while training goes on.
func (s *story) start(id string, plan *events.Plan, from, to, cause string) string {
	plan.Migration.Transfers = []events.Transfer{{To: to, Bytes: 300,
		Sources: []events.Source{{Node: from, Shards: events.Range{End: 1}}}}}
	return s.say("/negotiator", events.PreCopyStarted, id, &events.PreCopyStart{Negotiation: id, Plan: *plan}, cause)
}

// breaks has a node tell that its step under the plan of a generation cannot end.
func (s *story) breaks(node string, generation uint64) {
	s.node(node, events.StepBroken, node, &events.BrokenStep{
		Node: node, Incarnation: node + "-1", Generation: generation, Step: 10, Reason: "timed out",
	}, "")
}

// move gives a layer from one node to another.
func (s *story) move(id string, layer int, step uint64, from, to string) string {
	s.node(from, events.ShardOffered, fmt.Sprintf("unit-%d", layer), &events.Offer{
		Negotiation: id, Node: from, Unit: layer, Step: step, Digest: contentOf(layer, step), Bytes: 300,
		Parts: []events.Part{{Digest: contentOf(layer, step), First: 0, End: 300}},
	}, "")
	return s.node(to, events.ShardReceived, id, &events.Receipt{
		Negotiation: id, Node: to, Units: []events.ReceivedUnit{{Unit: layer, Step: step, Digest: contentOf(layer, step),
			Bytes: 300}},
	}, "")
}

func (s *story) digested(node string, step uint64, first, end int) {
	digests := &events.Digests{Node: node, Generation: 4, Step: step, Final: true}
	for layer := first; layer < end; layer++ {
		digests.Units = append(digests.Units, events.UnitDigest{Unit: layer, Digest: contentOf(layer, step)})
	}
	s.node(node, events.TrainingDigested, node, digests, "")
}

// completes ends the job, of which a node made the last step.
func (s *story) completes(node string) {
	s.say("/negotiator", events.TrainingCompleted, cluster, &events.JobEnd{Generation: 4, Step: 21, Nodes: []string{node}}, "")
}

// read turns the story into the log that Read makes of its lines.
func (s *story) read() *Log {
	s.t.Helper()
	var text bytes.Buffer
	for _, message := range s.lines {
		text.Write(append(s.encode(message), '\n'))
	}
	log, err := Read(&text)
	if err != nil {
		s.t.Fatal(err)
	}
	return log
}
