package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/internal/scene"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// town is a cluster of n1 and n2, which asked for a plan.
type town struct {
	t   *testing.T
	bus *bus.Bus
	url string
}

func newTown(t *testing.T) *town {
	t.Helper()
	b, url := scene.Begin(t, "c")
	town := &town{t: t, bus: b, url: url}
	layer := events.LayerProfile{ParameterBytes: 1 << 10, OptimizerBytes: 1 << 10, ForwardSeconds: 0.1, BackwardSeconds: 0.2}
	request := events.PlanRequest{Negotiation: "g", Cluster: "c", Generation: 1, SecondsBetweenFailures: 3600, Job: events.Job{
		Digest: events.Digest(nil), Layers: []events.LayerProfile{layer, layer}, GlobalBatch: 4, MicroBatch: 1}}
	for _, node := range []string{"n1", "n2"} {
		request.Nodes = append(request.Nodes, events.Device{
			Member: events.Member{Node: node, Incarnation: "i", Address: "a"}, MemoryBytes: 1 << 30, SpeedFactor: 1})
	}
	town.say(events.PlanRequested, "g", &request)
	return town
}

func (o *town) say(kind events.Kind, subject string, payload events.Payload) {
	o.t.Helper()
	event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Now(), subject, kind, subject, payload)
	if _, err := o.bus.Publish(o.t.Context(), event); err != nil {
		o.t.Fatal(err)
	}
}

func (o *town) run(w io.Writer, arguments ...string) error {
	command := Command()
	command.SetArgs(append(arguments, "--nats", o.url))
	command.SetOut(w)
	return command.ExecuteContext(o.t.Context())
}

// plug answers as a plug-in of a name.
func (o *town) plug(name string, answer func(events.PlanRequest) events.PolicyReply) {
	o.t.Helper()
	_, err := o.bus.Conn().Subscribe(events.PolicySubject("c", name), func(ask *nats.Msg) {
		var request events.PlanRequest
		if err := json.Unmarshal(ask.Data, &request); err != nil {
			o.t.Error(err)
		}
		data, _ := json.Marshal(answer(request))
		ask.Respond(data)
	})
	if err != nil {
		o.t.Fatal(err)
	}
	if err := o.bus.Conn().Flush(); err != nil {
		o.t.Fatal(err)
	}
}

// alone has a node of one name do everything.
func alone(node string) func(events.PlanRequest) events.PolicyReply {
	return func(request events.PlanRequest) events.PolicyReply {
		return events.PolicyReply{Negotiation: request.Negotiation, Plan: events.PolicyPlan{Pipelines: []events.Pipeline{{
			MicroBatches: 4, Stages: []events.Stage{{Node: node, Layers: events.Range{End: 2}}}}}}}
	}
}

func TestAPlugInIsTriedAsThePlannerWouldAskIt(t *testing.T) {
	o := newTown(t)
	o.plug("mine", alone("n2"))
	o.plug("theirs", alone("n9"))
	var printed strings.Builder
	if err := o.run(&printed, "mine", "--json"); err != nil {
		t.Fatal(err)
	}
	var trial Trial
	if err := json.Unmarshal([]byte(printed.String()), &trial); err != nil || trial.Plan == nil || trial.Plan.Policy != "repipeline" {
		t.Fatalf("%v, %+v: expected that both nodes are better than one", err, trial)
	}
	last := trial.Considered[len(trial.Considered)-1]
	if last.Policy != "mine" || last.StepSeconds == 0 || last.Rejected == "" {
		t.Errorf("the last candidate is %+v, expected the plug-in's, which lost", last)
	}
	for name, says := range map[string]string{"theirs": "n9", "nobody": "nobody answers there"} {
		if err := o.run(io.Discard, name); err == nil || errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, expected something of %s", name, err, says)
		}
	}
}

func TestAPolicyOfOursIsTriedAlone(t *testing.T) {
	o := newTown(t)
	var printed strings.Builder
	if err := o.run(&printed, "repipeline"); err != nil {
		t.Fatal(err)
	}
	if says := "The policy repipeline answered in "; !strings.Contains(printed.String(), says) || !strings.Contains(printed.String(), "- (taken)") {
		t.Errorf("expected %q in\n%s", says, &printed)
	}
}

func TestTheLastPlansTellWhatBecameOfEachPolicy(t *testing.T) {
	o := newTown(t)
	for generation := range uint64(4) {
		first, second := "repipeline", "reroute"
		if generation == 3 {
			first, second = second, first
		}
		o.say(events.PlanCommitted, fmt.Sprint(generation+1), &events.Plan{
			Cluster: "c", Generation: generation + 1, Parent: "p", Policy: first, Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
			Nodes:     []events.Member{{Node: "n1", Incarnation: "i", Address: "a"}},
			Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{{Node: "n1", Layers: events.Range{End: 1}}}}},
			Considered: []events.Candidate{
				{Policy: first, StepSeconds: 1}, {Policy: first, StepSeconds: 2, Rejected: "slow"}, {Policy: second, StepSeconds: 2, Rejected: "slower"}},
		})
	}
	var printed strings.Builder
	if err := o.run(&printed, "--json", "--last", "3"); err != nil {
		t.Fatal(err)
	}
	var records []Record
	if err := json.Unmarshal([]byte(printed.String()), &records); err != nil || len(records) != 2 {
		t.Fatalf("%v, %s", err, &printed)
	}
	reroute, repipeline := records[0], records[1]
	if reroute.Policy != "reroute" || reroute.Weighed != 3 || reroute.Taken != 1 || reroute.Rejected["slower"] != 2 {
		t.Errorf("%+v", reroute)
	}
	if repipeline.Weighed != 3 || repipeline.Taken != 2 || repipeline.Rejected["slower"] != 1 {
		t.Errorf("%+v", repipeline)
	}
	printed.Reset()
	if err := o.run(&printed); err != nil || !strings.Contains(printed.String(), "reroute     4        1      slower") {
		t.Errorf("%v,\n%s", err, &printed)
	}
}

// It was asked for as a plug-in, and nobody answered.
func TestWhatNobodyChoosesCannotBeTriedAndIsSaidToBeNoPolicy(t *testing.T) {
	for _, name := range []string{"data-parallel", "sharded", "wait"} {
		err := optionalName(nil, []string{name})
		says := `policy "` + name + `": expected one of adaptive, repipeline, reroute, or a plug-in`
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v, expected %s", name, err, says)
		}
	}
}
