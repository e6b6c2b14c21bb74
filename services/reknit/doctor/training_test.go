package doctor

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
)

// beats has n1 send a heartbeat now and then until the test ends, or it is to send another one.
func (c *clinic) beats(pulse events.Pulse) {
	pulse.Node, pulse.Incarnation, pulse.Generation, pulse.Step, pulse.StepSeconds = "n1", "i", 1, 57, 0.25
	if c.pulse.Swap(&pulse) != nil {
		return
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	c.t.Cleanup(ticker.Stop)
	go func() {
		for number := uint64(1); c.t.Context().Err() == nil; number++ {
			if now := c.pulse.Load(); now != nil {
				beat := *now
				beat.Number = number
				data, _ := json.Marshal(beat)
				c.bus.Conn().Publish(events.PulseSubject("c", "n1"), data)
			}
			select {
			case <-ticker.C:
			case <-c.t.Context().Done():
			}
		}
	}()
}

// serves has all services answer.
func (c *clinic) serves() {
	c.t.Helper()
	for _, service := range processes.Services {
		c.answer(events.LeaseSubject("c", service, ""), func(*nats.Msg) []byte { return nil })
	}
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

// Doctor said that nothing holds training up while nobody was there.
func TestAClusterInWhichNobodyTrainsAnyMoreIsNotWellAndOneWhoseAgentKeepsTheStateIsNotToldToBeginAnew(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.pulse.Store(nil)
	c.say("/node/n1", events.NodeExited, "n1", &events.Exit{Node: "n1", Incarnation: "i", Reason: "exit status 1", Keeps: true})
	c.say("/monitor", events.NodeLost, "n1", &events.NodeState{Node: "n1", Incarnation: "i", Reason: "its trainer is gone", Step: 57})
	found := c.training()
	if found.State != wrong || found.Says != "nobody trains any more" || !strings.Contains(found.Do, "leave the agents of n1 running") ||
		strings.Contains(found.Do, "reset") {
		t.Errorf("found %+v", found)
	}
}

func TestNobodyIsToldToEndAScriptWhileAChangeIsNegotiated(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.sound()
	c.beats(events.Pulse{Loss: 1, StillSeconds: 90, Phase: events.PhaseWaiting})
	c.commit(1)
	c.say("/negotiator", events.NegotiationOpened, "g2", &events.Opening{Negotiation: "g2", Generation: 2,
		Members: []events.Member{{Node: "n1", Incarnation: "i", Address: "n1:1"}},
		Changes: []events.Change{{Kind: events.ChangeJoin, Node: "n2"}}})
	found := c.training()
	waits := regexp.MustCompile(`end no script now, for a change is under way \(negotiated for .*, waiting for n1\)`)
	if found.State != wrong || !strings.Contains(found.Says, "no step for 1m30s") || !waits.MatchString(found.Do) {
		t.Errorf("found %+v", found)
	}
	c.say("/negotiator", events.Aborted, "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "it is over"})
	if found := c.training(); !strings.Contains(found.Do, "kill the script if it hangs") {
		t.Errorf("once it is over: found %+v", found)
	}
}

func TestOfAJobThatWasStoppedNobodyHasToBeThere(t *testing.T) {
	c := newClinic(t, func(jetstream.JetStream) {})
	c.serves()
	c.plan("127.0.0.1:1")
	c.say("/negotiator", events.TrainingStopped, "c", &events.JobStop{Generation: 1, Step: 57, Tier: "disk", Plan: events.Digest(nil)})
	if findings, err := examined(t, c.url); err != nil || len(findings) > 0 {
		t.Errorf("stopped: %v, %q", err, findings)
	}
	c.say("/negotiator", events.TrainingReset, "c", &events.JobReset{Generation: 1, Reason: "another job"})
	if findings, err := examined(t, c.url); err != nil || len(findings) > 0 {
		t.Errorf("to begin anew: %v, %q", err, findings)
	}
}

// training runs the command, and returns what it finds of training.
func (c *clinic) training() (found Finding) {
	c.t.Helper()
	var printed strings.Builder
	command := Command()
	command.SetArgs([]string{"--json", "--nats", c.url, "--cluster", "c"})
	command.SetOut(&printed)
	err := command.ExecuteContext(c.t.Context())
	var all []Finding
	if unread := json.Unmarshal([]byte(printed.String()), &all); unread != nil {
		c.t.Fatalf("%v: %v in %q", err, unread, printed.String())
	}
	for _, one := range all {
		if one.Check == "training" {
			found = one
		}
	}
	return found
}
