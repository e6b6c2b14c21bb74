package ahead

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// cluster is a request for the first plan of so many nodes and layers of one megabyte.
func cluster(nodes, layers, globalBatch int) events.PlanRequest {
	r := events.PlanRequest{
		Negotiation: "g1", Cluster: "c", Generation: 1, SecondsBetweenFailures: 3600,
		Job: events.Job{Digest: events.Digest([]byte("job")), GlobalBatch: globalBatch, MicroBatch: 1},
	}
	for range layers {
		r.Job.Layers = append(r.Job.Layers, events.LayerProfile{
			ParameterBytes: 1e6, OptimizerBytes: 2e6, GradientBytes: 1e6, ActivationBytes: 1e4, OutputBytes: 1e4,
			ForwardSeconds: 0.01, BackwardSeconds: 0.02,
		})
	}
	for i := range nodes {
		node := fmt.Sprintf("n%04d", i)
		r.Nodes = append(r.Nodes,
			events.Device{Member: events.Member{Node: node, Incarnation: "a", Address: node + ":1"}, MemoryBytes: 1e9,
				SpeedFactor: 1})
	}
	return r
}

var negotiator = events.Speaker{Source: "/negotiator", Cluster: "c"}

func said(kind events.Kind, subject string, payload events.Payload) events.Event {
	return negotiator.First(time.Unix(1, 0), "test", kind, subject, payload)
}

// committed plans for a request and returns a planner that heard the request and the plan.
func committed(t testing.TB, request events.PlanRequest, rest func()) *Planner {
	t.Helper()
	p := New(machine.Settings{Cluster: "c", Policy: policy.Adaptive, MinReplicas: 2, SwitchSeconds: 0.05}, &Cache{})
	p.rest = func(context.Context, time.Duration) { rest() }
	proposal, err := machine.New(p.settings).Plan(request)
	if err != nil {
		t.Fatal(err)
	}
	p.world.Hear(said(events.PlanRequested, request.Negotiation, &request))
	p.world.Hear(said(events.PlanCommitted, fmt.Sprint(request.Generation), &proposal.Plan))
	if p.world.Standing() == nil {
		t.Fatal("no plan stands")
	}
	return p
}

// questionsOf are all questions that may come next.
func questionsOf(p *Planner) (all []policy.Canonical) {
	for questions := range p.world.Questions(p.settings) {
		all = questions
	}
	return all
}

// next is the request after the loss of a node, as a negotiator makes it.
func next(r events.PlanRequest, plan events.Plan, lost string) events.PlanRequest {
	old := r
	r.Negotiation, r.Generation, r.Current, r.Nodes, r.Links = "g2-x", old.Generation+1, &plan, nil, nil
	r.Changes = []events.Change{{Kind: events.ChangeFailure, Node: lost, Cause: "e1"}}
	for _, device := range old.Nodes {
		if device.Node != lost {
			r.Nodes = append(r.Nodes, device)
		}
	}
	for _, link := range old.Links {
		if link.From != lost && link.To != lost {
			r.Links = append(r.Links, link)
		}
	}
	return r
}

// random is a cluster whose nodes, links and layers differ, and of two in three the optimizer state is partitioned.
func random(seed uint64) events.PlanRequest {
	dice := rand.New(rand.NewPCG(seed, 1))
	r := cluster(3+dice.IntN(7), 2+dice.IntN(5), 6+dice.IntN(10))
	r.Job.OptimizerPartitions = int(seed%3) * 2
	for i := range r.Nodes {
		r.Nodes[i].MemoryBytes = int64(1e7 + dice.IntN(3)*5e6)
		for j := range i {
			if dice.IntN(2) == 0 {
				r.Links = append(r.Links, events.Link{
					Measurement: events.Measurement{From: r.Nodes[i].Node, To: r.Nodes[j].Node,
						RoundTripSeconds: 0.01 * dice.Float64(), BandwidthBytesPerSecond: 1e6 * dice.Float64()},
					Disconnected: dice.IntN(8) == 0,
				})
			}
		}
	}
	return r
}

func TestAnAnswerComputedAheadIsTheAnswerComputedAfreshByteForByte(t *testing.T) {
	served := 0
	for seed := range uint64(60) {
		request := random(seed)
		if _, err := machine.New(machine.Settings{Cluster: "c", MinReplicas: 2,
			SwitchSeconds: 0.05}).Plan(request); err != nil {
			continue
		}
		p := committed(t, request, func() {})
		p.round(t.Context(), p.world.Standing())
		for _, device := range request.Nodes {
			asked := next(request, *p.world.Standing(), device.Node)
			asked.SecondsBetweenFailures = 3600 / (1 + rand.New(rand.NewPCG(seed, 2)).Float64()/3)
			event := said(events.PlanRequested, asked.Negotiation, &asked)
			fresh, err := machine.New(p.settings).Handle(event)
			if err != nil {
				t.Fatal(err)
			}
			m := machine.New(p.settings)
			question, err := m.Hear(event)
			if err != nil {
				t.Fatal(err)
			}
			candidates, found := p.cache.Answer(question.Canonical)
			if found {
				served++
			} else if fresh[0].Kind == events.PlanProposed {
				t.Errorf("seed %d: the loss of %s was not computed ahead", seed, device.Node)
			} else {
				continue
			}
			got := m.Answer(event, question, machine.Found{Candidates: candidates}, nil)
			if got[0].ID != fresh[0].ID || !bytes.Equal(got[0].Data, fresh[0].Data) {
				t.Fatalf("seed %d without %s:\n%s\nafresh:\n%s", seed, device.Node, got[0].Data, fresh[0].Data)
			}
		}
	}
	if served < 100 {
		t.Fatalf("only %d were served", served)
	}
}

// The nodes hold a third of the layers at most. There are as many classes of nodes as stages, twice that where the
// pipelines' batches differ; of pairs there are those within a pipeline and those across two.
func TestEqualFailuresAreComputedOnce(t *testing.T) {
	request := cluster(24, 8, 48)
	for i := range request.Nodes {
		request.Nodes[i].MemoryBytes = 2e7
	}
	p := committed(t, request, func() {})
	pipelines, shape := p.world.Standing().Pipelines, len(p.world.Standing().Pipelines[0].Stages)
	for _, pipeline := range pipelines {
		if len(pipeline.Stages) != shape || shape < 2 || pipeline.MicroBatches != pipelines[0].MicroBatches {
			t.Fatalf("expected equal pipelines, got %v", pipelines)
		}
	}
	p.round(t.Context(), p.world.Standing())
	within, across := shape*(shape-1)/2, shape*(shape+1)/2
	want := 2*shape + 3*(within+across)
	if p.cache.Len() != want {
		t.Fatalf("%d computed for 24 nodes in pipelines of %d, want %d", p.cache.Len(), shape, want)
	}
	first := &p.cache.answers[0].candidates[0]
	p.round(t.Context(), p.world.Standing())
	if p.cache.Len() != want || &p.cache.answers[0].candidates[0] != first {
		t.Fatal("nothing changed, and it was computed again")
	}
}

// With 256 nodes of which no two are alike it takes longer than the planner works at a time to ask all questions.
func TestQuestionsAreNoMoreAskedOnceSomethingIsNegotiated(t *testing.T) {
	request := cluster(256, 6, 512)
	for i := range request.Nodes {
		request.Nodes[i].MemoryBytes = int64(1e9 + i)
	}
	p := committed(t, request, func() {})
	plan, rests := p.world.Standing(), 0
	p.rest = func(context.Context, time.Duration) {
		rests++
		asked := next(request, *plan, "n0000")
		p.world.Hear(said(events.PlanRequested, asked.Negotiation, &asked))
	}
	p.round(t.Context(), plan)
	if rests != 1 || p.cache.Len() > 0 {
		t.Errorf("it rested %d times, and %d answers were computed", rests, p.cache.Len())
	}
}

func TestTheLossOfTwoNodesOrOfAHostIsComputedAhead(t *testing.T) {
	request := cluster(12, 6, 24)
	for i := range request.Nodes {
		request.Nodes[i].MemoryBytes = 2e7
		request.Nodes[i].Address = fmt.Sprintf("10.0.0.%d:%d", i/4, 7000+i)
	}
	p := committed(t, request, func() {})
	p.round(t.Context(), p.world.Standing())
	for _, lost := range [][]string{{"n0000", "n0001"}, {"n0003", "n0010"}, {"n0007", "n0002"},
		{"n0004", "n0005", "n0006", "n0007"}} {
		asked, plan := request, *p.world.Standing()
		for _, node := range lost {
			asked = next(asked, plan, node)
		}
		for failures := range len(lost) + 1 {
			asked.SecondsBetweenFailures = request.SecondsBetweenFailures / float64(1+failures)
			question := p.settings.Situation(asked).Canonical()
			answer, found := p.cache.Answer(question)
			fresh, err := p.settings.Policy.Answer(question.Situation)
			if !found || err != nil || !reflect.DeepEqual(answer, fresh) {
				t.Errorf("without %v, after %d failures: found %v, %v", lost, failures, found, err)
			}
		}
	}
}

func slowLink(from, to string) events.Event {
	monitor := events.Speaker{Source: "/monitor", Cluster: "c"}
	return monitor.First(time.Unix(1, 0), "test", events.LinkMeasured, "l",
		&events.Measurement{From: from, To: to, RoundTripSeconds: 1, BandwidthBytesPerSecond: 1e3})
}

func slowNode(node string) events.Event {
	return said(events.NodeProfiled, node, &events.Profile{Node: node, SpeedFactor: 0.5})
}

// Three of each, so that the loss of no two nodes undoes the change.
func TestAnswersAreDroppedWhenTheWorldChanges(t *testing.T) {
	for what, changes := range map[string][]events.Event{
		"links are slow": {slowLink("n0000", "n0001"), slowLink("n0002", "n0003"), slowLink("n0004", "n0005")},
		"nodes are slow": {slowNode("n0000"), slowNode("n0003"), slowNode("n0005")},
	} {
		p := committed(t, cluster(6, 6, 12), func() {})
		p.round(t.Context(), p.world.Standing())
		before := questionsOf(p)
		for _, change := range changes {
			p.world.Hear(change)
		}
		p.round(t.Context(), p.world.Standing())
		for _, question := range before {
			if _, found := p.cache.Answer(question); found {
				t.Errorf("%s: an old answer is kept", what)
			}
		}
		if p.cache.Len() != len(questionsOf(p)) {
			t.Errorf("%s: %d new answers", what, p.cache.Len())
		}
	}
}

func TestNothingIsComputedAheadUntilANegotiationEnds(t *testing.T) {
	request := cluster(6, 6, 12)
	p := committed(t, request, func() {})
	asked := next(request, *p.world.Standing(), "n0000")
	p.world.Hear(said(events.PlanRequested, asked.Negotiation, &asked))
	if p.world.Standing() != nil {
		t.Fatal("a plan was asked for, and the old one is taken for the last word")
	}
	p.world.Hear(said(events.Aborted, "other", &events.Abort{Negotiation: "other", Generation: 2, Reason: "test"}))
	if p.world.Standing() != nil {
		t.Fatal("the end of another negotiation ended this one")
	}
	p.world.Hear(said(events.Aborted, asked.Negotiation,
		&events.Abort{Negotiation: asked.Negotiation, Generation: 2, Reason: "test"}))
	if plan := p.world.Standing(); plan == nil || len(plan.Nodes) != 6 {
		t.Fatal("the plan in force was forgotten")
	}
}

// The whole answer from the request to the proposal, at 2,048 nodes.
func BenchmarkAPlanComputedAhead(b *testing.B) { benchmark(b, true) }

func BenchmarkAPlanComputedAfresh(b *testing.B) { benchmark(b, false) }

func benchmark(b *testing.B, ahead bool) {
	request := cluster(2048, 32, 2048)
	for i := range request.Nodes {
		request.Nodes[i].MemoryBytes = 2e7 // four layers and some
	}
	p := committed(b, request, func() {})
	asked := next(request, *p.world.Standing(), request.Nodes[777].Node)
	if ahead {
		p.round(b.Context(), p.world.Standing())
	}
	planner, event := machine.New(p.settings), said(events.PlanRequested, asked.Negotiation, &asked)
	for b.Loop() {
		question, err := planner.Hear(event)
		if err != nil {
			b.Fatal(err)
		}
		candidates, known := p.cache.Answer(question.Canonical)
		found := machine.Found{Candidates: candidates}
		if !known {
			found = planner.Search(question)
		}
		planner.Answer(event, question, found, nil)
	}
	b.ReportMetric(float64(p.cache.Len()), "answers")
}

// A planner that starts anew finds the last request and the last plan in the log. It is told of those behind them, whoever
// answers them, and finds their plans there.
func TestTheServiceComputesAheadFromTheLog(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "planner", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	request := cluster(6, 6, 12)
	known := committed(t, request, func() {})
	for _, event := range []events.Event{
		said(events.PlanRequested, request.Negotiation, &request),
		said(events.PlanCommitted, "1", known.world.Standing()),
		slowLink("n0000", "n0001"),
	} {
		if _, err := b.Publish(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		known.world.Hear(event)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	p := New(known.settings, &Cache{})
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx, b) }()
	defer func() { cancel(); <-done }()
	untilComputed(ctx, t, p, questionsOf(known))

	smaller := next(request, *known.world.Standing(), "n0005")
	asked := said(events.PlanRequested, smaller.Negotiation, &smaller)
	proposal, err := machine.New(p.settings).Plan(smaller)
	if err != nil {
		t.Fatal(err)
	}
	plan := said(events.PlanCommitted, "2", &proposal.Plan)
	asked.Sequence = 100 // of the log, behind the first; nobody reads it there
	p.Asked(asked)
	if _, err := b.Publish(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	known.world.Hear(asked)
	known.world.Hear(plan)
	untilComputed(ctx, t, p, questionsOf(known))
}

// untilComputed waits until each question has its answer.
func untilComputed(ctx context.Context, t *testing.T, p *Planner, questions []policy.Canonical) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for _, question := range questions {
		for {
			if _, found := p.cache.Answer(question); found {
				break
			}
			select {
			case <-look.C:
			case <-ctx.Done():
				t.Fatalf("%d of %d answers are computed", p.cache.Len(), len(questions))
			}
		}
	}
}
