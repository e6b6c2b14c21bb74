package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/reknit/internal/scene"
)

// teller makes the log of a cluster of n1 to n4, an event every ten milliseconds.
type teller struct {
	said  []events.Event
	began time.Time
	now   time.Time
}

func newTeller() *teller {
	began := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	return &teller{began: began, now: began}
}

func (l *teller) say(kind events.Kind, source, subject string, payload events.Payload) events.Event {
	l.now = l.now.Add(10 * time.Millisecond)
	event := events.Speaker{Source: source, Cluster: "c"}.First(l.now, fmt.Sprint(len(l.said)), kind, subject, payload)
	event.Logged = l.now
	l.said = append(l.said, event)
	return event
}

func (l *teller) pause(pause time.Duration) { l.now = l.now.Add(pause) }

func members(nodes ...string) (all []events.Member) {
	for _, node := range nodes {
		all = append(all, events.Member{Node: node, Incarnation: "i", Address: "a"})
	}
	return all
}

// chain is a plan of one pipeline, in which the last node receives two layers from the first one.
func chain(generation uint64, nodes ...string) events.Plan {
	plan := events.Plan{
		Cluster: "c", Generation: generation, Parent: "p", Policy: "repipeline", Nodes: members(nodes...),
		Pipelines: []events.Pipeline{{MicroBatches: 1}}, Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Migration: events.Migration{ShardBytes: 50, Transfers: []events.Transfer{{
			Unit: 0, To: nodes[len(nodes)-1], Bytes: 100, Sources: []events.Source{{Node: nodes[0], Shards: events.Range{End: 2}}},
		}}},
		Predicted: events.Predicted{StepSeconds: 1.1, StepSecondsLowerBound: 1},
		Considered: []events.Candidate{
			{Policy: "repipeline", Shape: fmt.Sprint(len(nodes)), StepSeconds: 1.1, Score: 9},
			{Policy: "reroute", Shape: "4", StepSeconds: 1.5, Score: 6, Rejected: "a slower step"},
		},
	}
	for i, node := range nodes {
		plan.Pipelines[0].Stages = append(plan.Pipelines[0].Stages,
			events.Stage{Node: node, Layers: events.Range{First: i, End: i + 1}})
	}
	return plan
}

func (l *teller) open(negotiation string, generation uint64, nodes []string, changes ...events.Change) {
	l.say(events.NegotiationOpened, "/negotiator", negotiation, &events.Opening{
		Negotiation: negotiation, Generation: generation, Changes: changes, Members: members(nodes...)})
}

func (l *teller) consent(negotiation string, nodes ...string) {
	for _, node := range nodes {
		l.say(events.Consented, "/node/"+node, node,
			&events.Consent{Negotiation: negotiation, Node: node, Incarnation: "i", Accepted: true})
	}
}

// agree says all from the request for a plan to its schedule.
func (l *teller) agree(negotiation string, plan events.Plan) {
	proposal := events.Proposal{Negotiation: negotiation, Plan: plan}
	l.say(events.PlanProposed, "/planner", negotiation, &proposal)
	l.say(events.RestorationAsked, "/negotiator", negotiation,
		&events.RestorationRequest{Negotiation: negotiation, Proposal: proposal, Units: make([]int64, len(plan.Nodes))})
	l.say(events.RestorationPlanned, "/restorer", negotiation,
		&events.Restoration{Negotiation: negotiation, Plan: plan, BytesMoved: 100, NaiveBytes: 400})
	l.say(events.Scheduled, "/negotiator", negotiation, &events.Schedule{Negotiation: negotiation, StopStep: 9, Plan: plan})
}

// receive says that the last node of a plan has what it needs.
func (l *teller) receive(negotiation string, plan events.Plan) {
	node := plan.Nodes[len(plan.Nodes)-1].Node
	l.say(events.ShardReceived, "/node/"+node, node, &events.Receipt{
		Negotiation: negotiation, Node: node, Seconds: 0.2, Units: []events.ReceivedUnit{{Digest: events.Digest(nil), Bytes: 100}},
		Sources: []events.Received{{From: "n1", Bytes: 100, BytesPerSecond: 500}},
	})
	l.say(events.RestorationDone, "/restorer", negotiation, &events.Completion{Negotiation: negotiation, Bytes: 100, Seconds: 0.2})
}

func (l *teller) commit(negotiation string, plan events.Plan) {
	l.say(events.Committed, "/negotiator", negotiation,
		&events.Commitment{Negotiation: negotiation, Generation: plan.Generation, PlanDigest: events.Digest(nil)})
	l.say(events.PlanCommitted, "/negotiator", fmt.Sprint(plan.Generation), &plan)
}

func (l *teller) step(generation uint64, stall float64, nodes ...string) {
	for _, node := range nodes {
		l.say(events.PlanActivated, "/node/"+node, node,
			&events.Activation{Node: node, Generation: generation, Step: 10, StallSeconds: stall, StallSteps: 2 * stall})
	}
}

// changes are those that a record makes of the log.
func (l *teller) changes() []changes.Change {
	record := changes.NewRecord(0)
	for _, event := range l.said {
		record.Take(event)
	}
	return record.Changes(l.now)
}

// serve publishes the log, and returns where it is.
func (l *teller) serve(t *testing.T) (url string) {
	t.Helper()
	url, say := server(t)
	l.say(events.LeaseTaken, "/monitor", "monitor", &events.Lease{Service: "monitor", Instance: "i"})
	say(l.said)
	return url
}

// server is a server with an empty log.
func server(t *testing.T) (url string, say func([]events.Event)) {
	t.Helper()
	b, url := scene.Begin(t, "c")
	return url, func(said []events.Event) {
		t.Helper()
		for _, event := range said {
			if _, err := b.Publish(t.Context(), event); err != nil {
				t.Fatalf("%s: %v", event.Kind, err)
			}
		}
	}
}

var all = []string{"n1", "n2", "n3", "n4"}

// failure tells of n4's failure, from the silence to the last step of those who are left.
func (l *teller) failure(generation uint64) {
	l.pause(500 * time.Millisecond)
	lost := l.say(events.NodeLost, "/monitor", "n4",
		&events.NodeState{Node: "n4", Incarnation: "i", Reason: "no heartbeat", SilentSeconds: 0.5})
	plan, negotiation := chain(generation, all[:3]...), fmt.Sprint("g", generation)
	l.open(negotiation, generation, all[:3], events.Change{Kind: events.ChangeFailure, Node: "n4", Cause: lost.ID})
	l.consent(negotiation, all[:3]...)
	l.agree(negotiation, plan)
	l.pause(200 * time.Millisecond)
	l.receive(negotiation, plan)
	l.commit(negotiation, plan)
	l.step(generation, 0.3, "n1", "n2")
	l.step(generation, 0.2, "n3")
}
