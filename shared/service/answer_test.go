package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/service"
)

// restorer answers a transfer in a way that depends on what it is asked.
type restorer struct {
	clerk
	answer func(scheduled events.Event) events.Payload
}

func (*restorer) Hears() []events.Kind { return []events.Kind{events.Scheduled} }

func (r *restorer) Handle(scheduled events.Event) ([]events.Event, error) {
	speaker := events.Speaker{Source: "/restorer", Cluster: cluster}
	return []events.Event{speaker.Say(scheduled, events.RestorationDone, scheduled.Subject, r.answer(scheduled))}, nil
}

func TestWhoAskedIsToldWhyItHasNoAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(events.Event) events.Payload
		reason string
	}{
		"that is no valid event":           {func(events.Event) events.Payload { return &events.Completion{Bytes: -1} }, `field "negotiation"`},
		"that is too large to travel":      {func(events.Event) events.Payload { return tooLarge{} }, "oversized"},
		"for its question cannot be borne": {func(events.Event) events.Payload { panic("cannot bear it") }, "cannot bear it"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			failed := f.said(events.RestorationFailed)
			f.run(service.Options{Name: "restorer", Machine: &restorer{answer: test.answer}})
			question := f.schedule("g2-1")
			told := f.expect(failed, "g2-1")
			failure, err := events.Open[events.Failure](told)
			if err != nil || !strings.Contains(failure.Reason, test.reason) || told.Cause != question.ID {
				t.Errorf("expected a failure by %s that says %q, got %+v by %s, %v", question.ID, test.reason, failure,
					told.Cause, err)
			}
		})
	}
}

// tooLarge is a completion that is valid and has more to say than may travel.
type tooLarge struct{ events.Completion }

func (tooLarge) MarshalJSON() ([]byte, error) {
	rest := strings.Repeat("x", events.MaxPayloadBytes)
	return []byte(`{"negotiation":"g2-1","bytes":1,"seconds":1,"rest":"` + rest + `"}`), nil
}

func (tooLarge) Validate() error { return nil }

// schedule asks for a transfer.
func (f *fixture) schedule(negotiation string) events.Event {
	stage := events.Stage{Node: "n1", Layers: events.Range{First: 0, End: 2}}
	plan := events.Plan{
		Cluster: cluster, Generation: 2, Parent: "sha256:parent", Policy: "repipeline", Nodes: []events.Member{{Node: "n1"}},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{stage}}},
		Data:      events.Data{GlobalBatch: 1, MicroBatch: 1},
	}
	negotiator := events.Speaker{Source: "/negotiator", Cluster: cluster}
	event := negotiator.First(time.Now(), negotiation, events.Scheduled, negotiation,
		&events.Schedule{Negotiation: negotiation, Plan: plan})
	if _, err := f.bus.Publish(f.ctx, event); err != nil {
		f.Fatal(err)
	}
	return event
}

func TestWhoAsksWhileAMachineComputesIsAnsweredAndToldWhat(t *testing.T) {
	f, machine := newFixture(t), &clerk{waits: make(chan struct{})}
	f.run(service.Options{Machine: machine})
	f.lose("n1")
	f.until("the machine has it", machine.asked.Load)
	ask := func() *nats.Msg {
		reply, err := f.connect().Conn().RequestWithContext(f.ctx, events.LeaseSubject(cluster, "negotiator", ""), nil)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if says := ask().Header.Get(service.ComputingHeader); !strings.Contains(says, ": node.lost of n1") {
		t.Errorf("it says that it computes %q", says)
	}
	close(machine.waits)
	f.until("it waits", func() bool { return ask().Header.Get(service.ComputingHeader) == "" })
}

func TestAServiceWhoseMachineHangsEndsAndSaysAtWhat(t *testing.T) {
	service.SetMostComputing(t, 10*time.Millisecond)
	f, machine := newFixture(t), &clerk{waits: make(chan struct{})}
	defer close(machine.waits)
	f.lose("n1")
	err := service.Run(f.ctx, service.Options{Name: "negotiator", Bus: f.connect(), Machine: machine})
	if err == nil || !strings.Contains(err.Error(), "hangs: computing since") || !strings.Contains(err.Error(), "node.lost of n1") {
		t.Errorf("it ended with %v", err)
	}
}
