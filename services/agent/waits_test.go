package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/snapshots"
)

// journal is what is logged, by any goroutine.
type journal struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.text.String()
}

// recorded keeps what a test logs.
func recorded(t *testing.T) *journal {
	log, before := new(journal), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

// expect waits until words were logged so many times.
func (j *journal) expect(t *testing.T, times int, words string) {
	t.Helper()
	for deadline := time.Now().Add(patience); strings.Count(j.String(), words) < times; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("expected %q %d times in\n%s", words, times, j.String())
		}
	}
}

// newcomer returns a hub with a node that waits for a plan, and is reminded of it soon.
func newcomer(t *testing.T) *hub {
	h := newHub(t)
	h.wait()
	return h
}

// wait has a node wait for a plan.
func (h *hub) wait() {
	before := remindEvery
	h.t.Cleanup(func() { remindEvery = before })
	remindEvery = 20 * time.Millisecond
	h.join("n1")
	h.stands()
}

// stands has the loop of the first node stand at its boundary.
func (h *hub) stands() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.sessions[0].Boundary(h.t.Context(), 0, new(kernel))
	}()
	h.t.Cleanup(func() { <-ended })
}

func (h *hub) hold(awaits ...string) {
	h.say(events.ClusterHeld, "c", &events.Hold{Reason: "no live node holds layer 0", Awaits: awaits})
}

// ends has n9, which worked before, end with exit status 0.
func (h *hub) ends() {
	well := 0
	h.asNode("n9", events.NodeExited, &events.Exit{Node: "n9", Incarnation: "i", Reason: "exit status 0", ExitCode: &well, Expected: true})
}

// asNode has a node say something.
func (h *hub) asNode(node string, kind events.Kind, payload events.Payload) {
	h.t.Helper()
	speaker := events.Speaker{Source: "/node/" + node, Cluster: "c"}
	if _, err := h.bus.Publish(h.t.Context(), speaker.First(time.Now(), "test", kind, node, payload)); err != nil {
		h.t.Fatal(err)
	}
}

func TestWhyTrainingWaitsIsToldAgainAndWhatToDo(t *testing.T) {
	log := recorded(t)
	h := newcomer(t)
	h.hold("n9")
	log.expect(t, 3, `msg="training waits"`)
	log.expect(t, 3, "start the nodes that are awaited again, by the names they had (REKNIT_AGENT_NODE, of reknit trainer REKNIT_TRAINER_NODE)")
	if strings.Contains(log.String(), "was finished") {
		t.Errorf("nobody said that the job was finished:\n%s", log.String())
	}
}

func TestAJobThatWasFinishedIsNamedWhereItsNodesAreWaitedFor(t *testing.T) {
	log := recorded(t)
	h := newcomer(t)
	h.ends()
	h.hold("n8", "n9")
	log.expect(t, 2, "this cluster's job was finished: n9 had completed its last step; "+
		"to train it longer: reknit cluster reset, and start all scripts again with more steps, in each of which the model that was saved "+
		"is loaded: no snapshots are taken here; "+
		"to begin anew at the first step: reknit cluster reset")
}

// A reset from a snapshot was advised to all, and had those wait for ever who have none.
func TestAResetFromASnapshotIsAdvisedOnlyWhereSnapshotsOutliveTheirProcesses(t *testing.T) {
	script := events.Job{Digest: events.Digest(nil), Kind: events.DataParallel, Layers: []events.LayerProfile{{ParameterBytes: 1}}}
	model := events.Job{Digest: events.Digest(nil), Layers: []events.LayerProfile{{ParameterBytes: 64}}}
	for _, row := range []struct {
		job      events.Job
		settings snapshots.Settings
		advises  bool
	}{
		{model, snapshots.Settings{Folder: t.TempDir(), DiskEvery: 1, Keep: 1, MaxBytes: 1 << 20}, true},
		{model, snapshots.Settings{MemoryEvery: 1, Keep: 1, MaxBytes: 1 << 20}, false},
		{model, snapshots.Settings{}, false},
		{script, snapshots.Settings{}, false},
	} {
		taken, err := snapshots.Open(t.Context(), row.settings, snapshots.Owner{Cluster: "c", Node: "n1", Job: row.job, MemoryBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		s := &Session{config: Config{Job: row.job}, snapshots: taken}
		if says := s.trainLonger(); strings.Contains(says, "--from-snapshot") != row.advises {
			t.Errorf("with %+v it says %s", row.settings, says)
		}
	}
}

func TestWhoLeftAndEndedHadCompletedNothing(t *testing.T) {
	log := recorded(t)
	h := newcomer(t)
	h.asNode("n9", events.LeaveRequested, &events.Leave{Node: "n9", Reason: "asked to go"})
	h.ends()
	h.hold("n9")
	log.expect(t, 2, "start the nodes that are awaited again")
}

func TestWhereNoNegotiatorAnswersItIsToldThatNoServicesServeTheCluster(t *testing.T) {
	log := recorded(t)
	newcomer(t)
	log.expect(t, 1, `level=WARN msg="no plan yet, and no services serve this cluster"`)
	log.expect(t, 1, "set REKNIT_CLUSTER to the one that they serve")
}

// works returns a hub whose negotiator answers.
func works(t *testing.T) *hub {
	h := newHub(t)
	answers, err := h.bus.Conn().Subscribe(events.LeaseSubject("c", "negotiator", ""), func(asked *nats.Msg) { _ = asked.Respond(nil) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answers.Unsubscribe() })
	if err := h.bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	return h
}

// Services were blamed each ten seconds while they worked: a step took ten seconds, or rank 0 evaluated.
func TestWhereANegotiatorAnswersTheServicesAreNotBlamed(t *testing.T) {
	log, h := recorded(t), works(t)
	h.wait()
	log.expect(t, 2, `level=INFO msg="no plan yet, and the services work: they wait for others"`)
	if strings.Contains(log.String(), "level=WARN msg=\"no plan yet") {
		t.Errorf("it warns:\n%s", log)
	}
}

// It said that there is no plan while two others trained by one.
func TestWhoHasNoPlaceYetInATrainingThatGoesOnSaysSo(t *testing.T) {
	log, h := recorded(t), works(t)
	h.wait()
	h.say(events.PlanCommitted, "1", &events.Plan{Cluster: "c", Generation: 1,
		Nodes:     []events.Member{{Node: "n9", Incarnation: "i", Address: "n9:1"}},
		Data:      events.Data{GlobalBatch: 1, MicroBatch: 1},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{{Node: "n9", Layers: events.Range{First: 0, End: 1}}}}}})
	log.expect(t, 2, `msg="others train, and this node has no place yet: it waits for the plan that takes it in"`)
	log.expect(t, 2, "generation=1 do=\"reknit nodes tells why it has none")
}

// A step was held, and of two agents the one that came later said that it waits for others.
func TestWhoComesToAClusterThatHoldsAlreadySaysWhy(t *testing.T) {
	log, h := recorded(t), works(t)
	h.hold()
	h.wait()
	log.expect(t, 2, `msg="training waits" node=n1 reason="no live node holds layer 0"`)
}

func TestWhoComesAfterAHoldThatIsOverDoesNotTellOfIt(t *testing.T) {
	log, h := recorded(t), works(t)
	h.hold()
	h.say(events.StepReleased, "c",
		&events.Release{Hold: 1, Step: 3, Samples: events.Samples{First: 36, Count: 12}, Skip: true, Reason: "a bad record"})
	h.wait()
	log.expect(t, 2, `level=INFO msg="no plan yet, and the services work: they wait for others"`)
	if strings.Contains(log.String(), "training waits") {
		t.Errorf("it tells of what is over:\n%s", log)
	}
}

// Nodes of a secured installation may not ask who acts, and one that came later said that nobody says why.
func TestWhoMayNotAskWhetherServicesWorkSaysWhyTheClusterHolds(t *testing.T) {
	log, h := recorded(t), newHub(t)
	unanswered, err := h.bus.Conn().SubscribeSync(events.LeaseSubject("c", "negotiator", ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unanswered.Unsubscribe() })
	h.hold()
	h.wait()
	log.expect(t, 1, `msg="training waits" node=n1 reason="no live node holds layer 0"`)
}
