package planner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner"
	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/shared/service"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

const patience = 2 * time.Minute

// request is for a plan of six layers on five nodes, of which three are left of pipelines of two and four.
func request() events.PlanRequest {
	r := events.PlanRequest{
		Negotiation: "g2-a", Cluster: "c", Generation: 2, SecondsBetweenFailures: 600, Current: &events.Plan{
			Cluster: "c", Generation: 1, Policy: "repipeline", LearningRateScale: 1,
			Data: events.Data{GlobalBatch: 12, MicroBatch: 1},
		},
		Changes: []events.Change{{Kind: events.ChangeFailure, Node: "n6", Cause: "e1"}},
		Job:     events.Job{Digest: events.Digest([]byte("job")), GlobalBatch: 12, MicroBatch: 1},
	}
	for range 6 {
		r.Job.Layers = append(r.Job.Layers, events.LayerProfile{
			ParameterBytes: 1e6, OptimizerBytes: 2e6, GradientBytes: 1e6, ActivationBytes: 1e4, OutputBytes: 1e4,
			ForwardSeconds: 0.01, BackwardSeconds: 0.02,
		})
	}
	for p := range 2 {
		pipeline := events.Pipeline{MicroBatches: 6}
		for st := range 3 {
			node := fmt.Sprintf("n%d", 3*p+st+1)
			member := events.Member{Node: node, Incarnation: "a", Address: node + ":1"}
			r.Current.Nodes = append(r.Current.Nodes, member)
			pipeline.Stages = append(pipeline.Stages,
				events.Stage{Node: node, Layers: events.Range{First: 2 * st, End: 2*st + 2}})
			if node != "n6" {
				r.Nodes = append(r.Nodes, events.Device{Member: member, MemoryBytes: 2e7, SpeedFactor: 1})
			}
		}
		r.Current.Pipelines = append(r.Current.Pipelines, pipeline)
	}
	return r
}

// planned answers a request with all policies of ours by themselves.
func planned(t *testing.T, r events.PlanRequest) *events.Proposal {
	t.Helper()
	proposal, err := machine.New(machine.Settings{Cluster: "c", MinReplicas: 2, SwitchSeconds: 0.05}).Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	return proposal
}

// plugin answers requests for plans; a nil answer is none.
type plugin func(events.PlanRequest) any

// ask runs a planner with plug-ins and returns its answer to the request.
func ask(t *testing.T, policy string, deadline time.Duration, plugins map[string]plugin) events.Proposal {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	b, err := bus.Connect(ctx, bus.Config{URL: server.URL(), Name: "test", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	config := planner.Config{
		Common: service.Common{URL: server.URL(), Cluster: "c"}, Policy: policy, PluginDeadline: deadline,
		MinReplicas: 2,
		SwitchTime:  50 * time.Millisecond,
		Slowdown:    1.05,
	}
	for name, answer := range plugins {
		config.Plugins = append(config.Plugins, name)
		if answer != nil {
			subscribe(t, b.Conn(), name, answer)
		}
	}
	return answerOf(t, ctx, b, config)
}

func subscribe(t *testing.T, conn *nats.Conn, name string, answer plugin) {
	t.Helper()
	_, err := conn.Subscribe(events.PolicySubject("c", name), func(message *nats.Msg) {
		var r events.PlanRequest
		if err := json.Unmarshal(message.Data, &r); err != nil {
			t.Error(err)
		}
		switch answer := answer(r).(type) {
		case nil:
		case string:
			_ = message.Respond([]byte(answer))
		default:
			data, _ := json.Marshal(answer)
			_ = message.Respond(data)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

func answerOf(t *testing.T, ctx context.Context, b *bus.Bus, config planner.Config) events.Proposal {
	t.Helper()
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	heard := make(chan events.Event, 1)
	subject := events.EventSubject("c", events.PlanProposed, "*")
	if _, err := b.Follow(ctx, events.EventStream, []string{subject}, bus.All,
		func(event events.Event) { heard <- event }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- planner.Run(ctx, config) }()
	defer func() { cancel(); <-ended }()
	asked, negotiator := request(), events.Speaker{Source: "/negotiator", Cluster: "c"}
	if _, err := b.Publish(ctx,
		negotiator.First(time.Now(), "test", events.PlanRequested, asked.Negotiation, &asked)); err != nil {
		t.Fatal(err)
	}
	select {
	case event := <-heard:
		proposal, err := events.Open[events.Proposal](event)
		if err != nil {
			t.Fatal(err)
		}
		return proposal
	case err := <-ended:
		ended <- err
		t.Fatalf("the planner ended: %v", err)
	case <-ctx.Done():
		t.Fatal("no answer")
	}
	return events.Proposal{}
}

// whole is a valid plan of one long pipeline, and a claim.
func whole(r events.PlanRequest, stepSeconds float64) events.Proposal {
	pipeline := events.Pipeline{MicroBatches: 12}
	for i, end := range []int{2, 3, 4, 5, 6} {
		first := 0
		if i > 0 {
			first = i + 1
		}
		pipeline.Stages = append(pipeline.Stages,
			events.Stage{Node: r.Nodes[i].Node, Layers: events.Range{First: first, End: end}})
	}
	return events.Proposal{Negotiation: r.Negotiation, Plan: events.Plan{
		Pipelines: []events.Pipeline{pipeline}, Predicted: events.Predicted{StepSeconds: stepSeconds},
	}}
}

func TestSlowWrongLyingAndAbsentPluginsCostNothingButTheDeadline(t *testing.T) {
	proposal := ask(t, "adaptive", 2*time.Second, map[string]plugin{
		"absent": nil,
		"slow":   func(events.PlanRequest) any { return nil },
		"lying":  func(r events.PlanRequest) any { return whole(r, 1e-9) },
		"noise":  func(events.PlanRequest) any { return "no plan, no JSON" },
		"stale":  func(r events.PlanRequest) any { r.Negotiation = "g1-z"; return whole(r, 1) },
		"short": func(r events.PlanRequest) any {
			p := whole(r, 1)
			p.Plan.Pipelines[0].Stages = p.Plan.Pipelines[0].Stages[:4]
			return p
		},
		"stranger": func(r events.PlanRequest) any {
			p := whole(r, 1)
			p.Plan.Pipelines[0].Stages[0].Node = "n6"
			return p
		},
	})
	ours := planned(t, request())
	if !reflect.DeepEqual(proposal.Plan.Pipelines, ours.Plan.Pipelines) ||
		proposal.Plan.Predicted.StepSeconds != ours.Plan.Predicted.StepSeconds {
		t.Fatalf("%+v, without plug-ins %+v", proposal.Plan, ours.Plan)
	}
	reasons := map[string]string{}
	for _, candidate := range proposal.Plan.Considered {
		reasons[candidate.Policy] = candidate.Rejected
		if candidate.Policy == "lying" && candidate.StepSeconds < ours.Plan.Predicted.StepSeconds {
			t.Errorf("believed in a step of %v s", candidate.StepSeconds)
		}
	}
	for name, says := range map[string]string{
		"absent": "nobody answers on reknit.policy.c.absent", "slow": "no answer within 2s",
		"lying": "claimed a step of 1e-09 s",
		"noise": "expected a reply as JSON", "stale": `negotiation: expected "g2-a"`,
		"short":    "expected all 6 layers, got 5",
		"stranger": `no other place, got "n6"`,
	} {
		if !strings.Contains(reasons[name], says) {
			t.Errorf("%s: rejected for %q, want %q", name, reasons[name], says)
		}
	}
}

func TestABetterPlanOfAPluginIsUsedWithFiguresOfOurs(t *testing.T) {
	better := planned(t, request())
	better.Plan.Predicted.StepSeconds = 0
	proposal := ask(t, "reroute", 5*time.Second/2,
		map[string]plugin{"theirs": func(events.PlanRequest) any { return better }})
	plan := proposal.Plan
	if plan.Policy != "theirs" || !reflect.DeepEqual(plan.Pipelines, better.Plan.Pipelines) ||
		plan.Predicted.StepSeconds <= 0 || len(plan.Nodes) != 5 {
		t.Fatalf("%+v", plan)
	}
	for _, candidate := range plan.Considered[1:] {
		if candidate.Policy != "reroute" || candidate.Rejected == "" {
			t.Errorf("%+v", candidate)
		}
	}
}

func TestAConfigurationThatMakesNoSenseNamesItsVariable(t *testing.T) {
	for given, says := range map[string]string{
		"REKNIT_POLICY=best":                 `REKNIT_POLICY: policy "best": expected one of adaptive,`,
		"REKNIT_MIN_REPLICAS=0":              "REKNIT_MIN_REPLICAS: expected nodes, 1 to",
		"REKNIT_SWITCH_TIME=-1s":             "REKNIT_SWITCH_TIME: expected duration, at least 0",
		"REKNIT_RESTART_TIME=-1s":            "REKNIT_RESTART_TIME: expected duration, at least 0",
		"REKNIT_SLOWDOWN=0.9":                "REKNIT_SLOWDOWN: expected times, at least 1",
		"REKNIT_SLOWDOWN=NaN":                "REKNIT_SLOWDOWN: expected times, at least 1",
		"REKNIT_POLICY_PLUGIN_DEADLINE=0s":   "REKNIT_POLICY_PLUGIN_DEADLINE: expected duration, more than 0, at most 3s",
		"REKNIT_POLICY_PLUGIN_DEADLINE=4s":   "REKNIT_POLICY_PLUGIN_DEADLINE: expected duration, more than 0, at most 3s",
		"REKNIT_POLICY_PLUGINS=mine,reroute": `none of a policy of ours, got "reroute"`,
		"REKNIT_POLICY_PLUGINS=mine,mine":    `each once, none of a policy of ours, got "mine"`,
		"REKNIT_POLICY_PLUGINS=a.b":          `A-Z a-z 0-9 - _, each once, none of a policy of ours, g`,
	} {
		name, value, _ := strings.Cut(given, "=")
		if err := service.Read(new(planner.Config), map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: expected %q, got %v", given, says, err)
		}
	}
}
