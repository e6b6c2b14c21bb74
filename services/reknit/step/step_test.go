package step

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/internal/scene"
	"github.com/reknit/reknit/shared/bus"
)

// house is a cluster whose negotiator is the test.
type house struct {
	t   *testing.T
	bus *bus.Bus
	url string
}

func newHouse(t *testing.T) *house {
	t.Helper()
	b, url := scene.Begin(t, "c")
	return &house{t, b, url}
}

func (h *house) say(kind events.Kind, payload events.Payload) {
	speaker := events.Speaker{Source: "/negotiator", Cluster: "c"}
	if _, err := h.bus.Publish(h.t.Context(), speaker.First(time.Now(), string(kind), kind, "c", payload)); err != nil {
		h.t.Errorf("%s: %v", kind, err)
	}
}

// run runs a command while answer does what a negotiator does with the request.
func (h *house) run(answer func(events.ReleaseRequest), arguments ...string) (printed string, err error) {
	h.t.Helper()
	var answering sync.Mutex // an answer is said to its end, though the command has read it
	subject := events.EventSubject("c", events.ReleaseRequested, "*")
	end, err := h.bus.Follow(h.t.Context(), events.EventStream, []string{subject}, bus.New, func(event events.Event) {
		request, err := events.Open[events.ReleaseRequest](event)
		if err != nil || event.Source != "/user" {
			h.t.Errorf("%s asks, %v", event.Source, err)
		}
		answering.Lock()
		defer answering.Unlock()
		answer(request)
	})
	if err != nil {
		h.t.Fatal(err)
	}
	defer end()
	var output strings.Builder
	command := Command()
	command.SetArgs(append(arguments, "--nats", h.url, "--cluster", "c"))
	command.SetOut(&output)
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	err = command.ExecuteContext(ctx)
	answering.Lock()
	defer answering.Unlock()
	return output.String(), err
}

var samples = events.Samples{First: 360, Count: 12}

func (h *house) holdStep() {
	h.say(events.ClusterHeld, &events.Hold{
		Reason: "step 30 is held", Step: &events.HeldStep{Hold: 2, Step: 30, Samples: samples, Died: []string{"n1", "n2"}},
	})
}

func TestASkipNamesTheHoldAndWhoAsksAndTellsWhichSamplesArePassedOver(t *testing.T) {
	h := newHouse(t)
	h.holdStep()
	printed, err := h.run(func(request events.ReleaseRequest) {
		if request.Hold != 2 || request.Step != 30 || !request.Skip || !strings.HasPrefix(request.Reason, "asked by ") {
			t.Errorf("asked for %+v", request)
		}
		h.say(events.StepReleased, &events.Release{Hold: 2, Step: 30, Samples: samples, Skip: true, Reason: request.Reason})
	}, "skip", "--yes")
	if err != nil || !strings.HasPrefix(printed, "samples 360 to 371 are passed over: step 30 trains what comes behind them (asked by ") {
		t.Errorf("%v, %s", err, printed)
	}
}

func TestARetryTellsThatMendedScriptsAreStartedAgainBefore(t *testing.T) {
	h := newHouse(t)
	h.holdStep()
	printed, err := h.run(func(request events.ReleaseRequest) {
		h.say(events.StepReleased, &events.Release{Hold: 2, Step: 30, Samples: samples, Reason: request.Reason})
	}, "retry")
	if says := "if as many end in it again: a script that you mended must be started again before"; err != nil || !strings.Contains(printed, says) {
		t.Errorf("%v, %s", err, printed)
	}
}

func TestARetryThatIsRefusedTellsWhy(t *testing.T) {
	h := newHouse(t)
	h.holdStep()
	_, err := h.run(func(request events.ReleaseRequest) {
		if request.Skip || request.Reason != "the mount is back" {
			t.Errorf("asked for %+v", request)
		}
		h.say(events.ReleaseRefused, &events.ReleaseRefusal{Hold: 2, Step: 30, Reason: "no step is held"})
	}, "retry", "--reason", "the mount is back")
	if err == nil || err.Error() != "step 30 is not released: no step is held" {
		t.Errorf("got %v", err)
	}
}

func TestWhereNoStepIsHeldNothingIsAsked(t *testing.T) {
	h := newHouse(t)
	h.say(events.ClusterHeld, &events.Hold{Reason: "waiting for more nodes"})
	_, err := h.run(func(events.ReleaseRequest) { t.Error("asked") }, "retry")
	if err == nil || !strings.Contains(err.Error(), "no step is held") {
		t.Errorf("got %v", err)
	}
}

func TestASkipWhichFindsTheStepRetriedFailsAndSaysSo(t *testing.T) {
	h := newHouse(t)
	h.holdStep()
	printed, err := h.run(func(events.ReleaseRequest) {
		h.say(events.StepReleased, &events.Release{Hold: 2, Step: 30, Samples: samples, Reason: "asked by another"})
	}, "skip")
	if err == nil || !strings.Contains(err.Error(), "another request came first: ") || printed != "" {
		t.Errorf("%v, printed %q", err, printed)
	}
}
