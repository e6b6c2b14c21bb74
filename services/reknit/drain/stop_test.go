package drain

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// stop runs reknit stop while answer does what a negotiator does with the request.
func (h *house) stop(answer func(events.StopRequest)) (printed string, err error) {
	h.t.Helper()
	return h.run(StopCommand(), []string{"--reason", "the rack is moved"}, events.StopRequested, func(event events.Event) error {
		request, err := events.Open[events.StopRequest](event)
		answer(request)
		return err
	})
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
