package drain

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// stop runs reknit stop while answer does what a negotiator does with the request.
func (h *house) stop(answer func(events.StopRequest)) (printed string, err error) {
	h.t.Helper()
	subject := events.EventSubject("c", events.StopRequested, "*")
	var answering sync.WaitGroup
	end, err := h.bus.Follow(h.t.Context(), events.EventStream, []string{subject}, bus.New, func(event events.Event) {
		answering.Add(1)
		defer answering.Done()
		request, err := events.Open[events.StopRequest](event)
		if err != nil || event.Source != "/user" {
			h.t.Errorf("%s asks, %v", event.Source, err)
		}
		answer(request)
	})
	if err != nil {
		h.t.Fatal(err)
	}
	defer end()
	var output strings.Builder
	command := StopCommand()
	command.SetArgs([]string{"--reason", "the rack is moved", "--nats", h.url, "--cluster", "c"})
	command.SetOut(&output)
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	err = command.ExecuteContext(ctx)
	answering.Wait() // the command may hear the answer before who gives it hears that it is stored
	return output.String(), err
}

func TestAStopTellsTheStepOfTheSnapshotAndHowTrainingGoesOn(t *testing.T) {
	h := newHouse(t)
	printed, err := h.stop(func(request events.StopRequest) {
		h.say(events.TrainingStopped, "/negotiator", "c",
			&events.JobStop{Generation: 1, Step: 40, Tier: "disk", Plan: events.Digest(nil), Reason: request.Reason})
	})
	if err != nil || !strings.Contains(printed, "stopped at step 40, snapshot complete at 40 (disk)") {
		t.Errorf("%v, %s", err, printed)
	}
}

func TestAStopThatCannotBeTellsWhy(t *testing.T) {
	h := newHouse(t)
	_, err := h.stop(func(events.StopRequest) {
		h.say(events.StopRefused, "/negotiator", "c", &events.StopRefusal{Reason: "n1 writes no snapshots"})
	})
	if err == nil || err.Error() != "training does not stop: n1 writes no snapshots" {
		t.Errorf("got %v", err)
	}
}
