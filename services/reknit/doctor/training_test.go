package doctor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// beats has n1 send a heartbeat now and then until the test ends.
func (c *clinic) beats(pulse events.Pulse) {
	pulse.Node, pulse.Incarnation, pulse.Generation, pulse.Step, pulse.StepSeconds = "n1", "i", 1, 57, 0.25
	ticker := time.NewTicker(50 * time.Millisecond)
	c.t.Cleanup(ticker.Stop)
	go func() {
		for number := uint64(1); c.t.Context().Err() == nil; number++ {
			pulse.Number = number
			data, _ := json.Marshal(pulse)
			c.bus.Conn().Publish(events.PulseSubject("c", "n1"), data)
			select {
			case <-ticker.C:
			case <-c.t.Context().Done():
			}
		}
	}()
}

// A job whose loss was NaN for 900 steps was well to doctor.
func TestALossThatIsNotFiniteIsFoundWithItsFirstStepTheSnapshotOfBeforeAndWhatToDo(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.say("/restorer", events.SnapshotCompleted, "disk", &events.CompleteSnapshot{Tier: "disk", Step: 40, Plan: events.Digest(nil)})
	c.beats(events.Pulse{LossNotFinite: true, LossNotFiniteSince: 44, StillSeconds: 0.1})
	findings, err := examined(t, c.url)
	all := strings.Join(findings, "\n")
	if err == nil || !strings.Contains(all, "training wrong: the loss is not finite since step 44") ||
		!strings.Contains(all, "that of step 40 (disk) stays") {
		t.Errorf("%v: %s", err, all)
	}
}

func TestAScriptThatHangsAloneIsFound(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.beats(events.Pulse{Loss: 1, StillSeconds: 90, Between: true})
	findings, err := examined(t, c.url)
	if all := strings.Join(findings, "\n"); err == nil || !strings.Contains(all, "training wrong: no step for 1m30s, 250ms is usual") {
		t.Errorf("%v: %s", err, all)
	}
}

func TestATrainerThatMadeAStepJustNowIsWell(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.beats(events.Pulse{Loss: 1, StillSeconds: 2})
	if findings, err := examined(t, c.url); err != nil || len(findings) > 0 {
		t.Errorf("%v, %q", err, findings)
	}
}
