package reset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/internal/scene"
	"github.com/reknit/reknit/shared/bus"
)

// site is a cluster c of which the test is everybody: asked to begin anew, the negotiator says an answer.
type site struct {
	*testing.T
	bus *bus.Bus
	url string

	answering *sync.WaitGroup // an answer is said to its end, though the command has read it
}

func newSite(t *testing.T, kind events.Kind, answer events.Payload) *site {
	t.Helper()
	b, url := scene.Begin(t, "c")
	s := &site{t, b, url, new(sync.WaitGroup)}
	_, err := b.Conn().Subscribe(events.EventSubject("c", events.ResetRequested, "c"), func(asked *nats.Msg) {
		var request struct{ ID string }
		if err := json.Unmarshal(asked.Data, &request); err != nil {
			t.Error(err)
		}
		event := events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Now(), request.ID, kind, "c", answer)
		event.Cause = request.ID
		s.answering.Go(func() { s.publish(event) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) publish(event events.Event) {
	if _, err := s.bus.Publish(s.Context(), event); err != nil {
		s.Error(err)
	}
}

// plan commits one, which went on from step 40.
func (s *site) plan() {
	plan := &events.Plan{
		Cluster: "c", Generation: 1, Policy: "repipeline", ResumeStep: 40, Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Nodes:     []events.Member{{Node: "n1", Incarnation: "i", Address: "n1:1"}},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{{Node: "n1", Layers: events.Range{End: 1}}}}},
	}
	s.publish(events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Now(), "plan", events.PlanCommitted, "1", plan))
}

func (s *site) run(typed string, arguments ...string) (printed string, err error) {
	var output strings.Builder
	command := Command()
	command.SetArgs(append(arguments, "--nats", s.url, "--cluster", "c"))
	command.SetOut(&output)
	command.SetIn(strings.NewReader(typed))
	err = command.ExecuteContext(s.Context())
	s.answering.Wait()
	return output.String(), err
}

// A complete job was to be trained longer from its last snapshot, and the command said that all was given up.
func TestWhatIsGivenUpBehindASnapshotIsToldAndWhereItIsNothing(t *testing.T) {
	s := newSite(t, events.TrainingReset, &events.JobReset{Generation: 1, Reason: "r", Snapshots: true})
	s.plan()
	for _, c := range []struct {
		complete uint64
		says     string
	}{
		{0, "the log tells of no snapshot that is complete"},
		{30, "What was trained in c is given up behind step 30, of which a snapshot is complete (disk): to step 40 or further"},
		{40, "Nothing is given up that is known: training in c has come to step 40, and the snapshot of step 40 is complete (disk)"},
	} {
		if c.complete > 0 {
			s.publish(events.Speaker{Source: "/restorer", Cluster: "c"}.First(time.Now(), c.says, events.SnapshotCompleted, "disk",
				&events.CompleteSnapshot{Tier: "disk", Step: c.complete, Plan: events.Digest(nil)}))
		}
		if printed, _ := s.run("no\n", "--from-snapshot"); !strings.Contains(printed, c.says) {
			t.Errorf("it says %q: expected %q", printed, c.says)
		}
	}
}

// All that was trained was said to be given up, though each script had its checkpoint.
func TestOfScriptsThatKeepTheirOwnStateNothingIsSaidToBeGivenUp(t *testing.T) {
	s := newSite(t, events.TrainingReset, &events.JobReset{Generation: 1, Reason: "r"})
	s.plan()
	request := &events.PlanRequest{Cluster: "c", Negotiation: "g1", Generation: 1, Job: events.Job{
		Digest: events.Digest(nil), Kind: events.DataParallel, Layers: []events.LayerProfile{{ParameterBytes: 1}}, GlobalBatch: 1, MicroBatch: 1}}
	s.publish(events.Speaker{Source: "/negotiator", Cluster: "c"}.First(time.Now(), "request", events.PlanRequested, "g1", request))
	printed, err := s.run("", "--yes")
	if err != nil || !strings.Contains(printed, "keep their own state (--unchanged)") || strings.Contains(printed, "given up") {
		t.Errorf("%v, %s", err, printed)
	}
}

func TestNothingIsGivenUpUnlessTheNameOfTheClusterIsTyped(t *testing.T) {
	s := newSite(t, events.TrainingReset, &events.JobReset{Generation: 1, Reason: "r"})
	if _, err := s.run("c\n"); err == nil || !strings.Contains(err.Error(), "nothing was trained") {
		t.Errorf("before the first plan: %v", err)
	}
	s.plan()
	printed, err := s.run("yes\n")
	if err == nil || err.Error() != "nothing was given up" || !strings.Contains(printed, "step 40") {
		t.Errorf("another name: %q, %v", printed, err)
	}
	if _, found, _ := s.bus.LastEvent(t.Context(), events.EventStream, events.EventSubject("c", events.ResetRequested, "c")); found {
		t.Error("it was asked for")
	}
	for _, given := range [][]string{{"c\n"}, {"", "--yes"}, {"", "--yes", "--from-snapshot"}} {
		says := "training begins anew: "
		if slices.Contains(given, "--from-snapshot") {
			says = "training goes on from the newest snapshot "
		}
		if printed, err := s.run(given[0], given[1:]...); err != nil || !strings.Contains(printed, says) {
			t.Errorf("%q: %q, %v", given, printed, err)
		}
	}
}

func TestWhoMayLiveAndTheStepThatIsGivenUpAreToldBeforeAndAfter(t *testing.T) {
	s := newSite(t, events.TrainingReset, &events.JobReset{Generation: 1, Reason: "r", Step: 57, Silent: []string{"n1"}})
	s.plan()
	s.publish(events.Speaker{Source: "/monitor", Cluster: "c"}.First(time.Now(), "lost", events.NodeLost, "n1",
		&events.NodeState{Node: "n1", Incarnation: "i", Reason: "no heartbeat", Step: 57}))
	printed, err := s.run("no\n")
	if err == nil || !strings.Contains(printed, "to step 57") || !strings.Contains(printed, "n1 is lost: no heartbeat") {
		t.Errorf("before: %q, %v", printed, err)
	}
	printed, err = s.run("", "--yes")
	if err != nil || !strings.Contains(printed, "nobody knows that these have ended: n1") || !strings.Contains(printed, "to step 57") {
		t.Errorf("after: %q, %v", printed, err)
	}
}

func TestWhereNobodyKnowsStepsNoneIsToldOfThoseWhoMayLive(t *testing.T) {
	s := newSite(t, events.TrainingReset, &events.JobReset{Generation: 1, Reason: "r", Silent: []string{"n1"}})
	s.plan()
	if printed, err := s.run("", "--yes"); err != nil || !strings.Contains(printed, "ended: n1. What they hold counts for nothing: end them") {
		t.Errorf("%q, %v", printed, err)
	}
}

func TestWhereAsManyAreNamedAsMayBeThereMayBeMore(t *testing.T) {
	var silent []string
	for i := range events.MostSilent {
		silent = append(silent, fmt.Sprintf("n%d", i))
	}
	s := newSite(t, events.TrainingReset, &events.JobReset{Generation: 1, Reason: "r", Step: 57, Silent: silent})
	s.plan()
	if printed, err := s.run("", "--yes"); err != nil || !strings.Contains(printed, "n63, and perhaps more. What they hold") {
		t.Errorf("%q, %v", printed, err)
	}
}

func TestWhoMayNotIsToldWhy(t *testing.T) {
	s := newSite(t, events.ResetRefused, &events.ResetRefusal{Reason: "n1, n2 may train: end them first"})
	s.plan()
	if _, err := s.run("", "--yes"); err == nil || err.Error() != "nothing is given up: n1, n2 may train: end them first" {
		t.Error(err)
	}
}
