package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
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
	before := remindEvery
	remindEvery = 20 * time.Millisecond
	h := newHub(t)
	h.join("n1")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.sessions[0].Boundary(t.Context(), 0, new(kernel))
	}()
	t.Cleanup(func() { <-ended; remindEvery = before })
	return h
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
		"a new job begins in another cluster: reknit up --cluster OTHER --dir OTHER-data --port 0")
}

func TestWhoLeftAndEndedHadCompletedNothing(t *testing.T) {
	log := recorded(t)
	h := newcomer(t)
	h.asNode("n9", events.LeaveRequested, &events.Leave{Node: "n9", Reason: "asked to go"})
	h.ends()
	h.hold("n9")
	log.expect(t, 2, "start the nodes that are awaited again")
}

func TestWhereNobodySpeaksItIsToldThatNoServicesServeTheCluster(t *testing.T) {
	log := recorded(t)
	newcomer(t)
	log.expect(t, 1, "most likely no services serve this cluster")
	log.expect(t, 1, "set REKNIT_CLUSTER to the one that they serve")
}
