package observation

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/shared/telemetry"
	"github.com/reknit/reknit/tests/services"
)

// patience is how long a test waits for what must happen; nothing takes that long.
const patience = time.Minute

const clusterName = "watched"

// TestMain makes a trainer of a copy of the test that has a trainer's settings.
func TestMain(m *testing.M) {
	if os.Getenv("REKNIT_TRAINER_NODE") != "" {
		os.Args = os.Args[:1]
		service.Main("trainer", trainer.Run)
		return
	}
	os.Exit(m.Run())
}

// watched is a cluster whose spans are collected.
type watched struct {
	*testing.T
	spans   *collected
	url     string
	metrics string // host:port
	text    string
	news    chan events.Event
}

func watch(t *testing.T) *watched {
	w := &watched{T: t, metrics: freeAddress(t), text: filepath.Join(t.TempDir(), "text"), news: make(chan events.Event, 1<<12)}
	var address string
	w.spans, address = collect(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50") // ms until spans are sent
	shutdown, err := telemetry.Setup(t.Context(), "services")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shutdown(context.Background()) })
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if err := os.WriteFile(w.text, []byte(strings.Repeat("A bar of iron heated in the fire, and a wheel that turns. ", 50)), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	w.url = server.URL()
	services.Provision(t, w.url, clusterName)
	services.RunWith(t, w.url, clusterName, 3, func(service string) map[string]string {
		if service != "monitor" {
			return nil // one process has one set of metrics
		}
		return map[string]string{"REKNIT_HTTP_ADDRESS": w.metrics}
	})
	w.follow()
	return w
}

// follow hears who works under a new plan.
func (w *watched) follow() {
	w.Helper()
	b, err := bus.Connect(w.Context(), bus.Config{URL: w.url, Name: "test", Cluster: clusterName})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(b.Close)
	activated := []string{events.EventSubject(clusterName, events.PlanActivated, "*")}
	stop, err := b.Follow(w.Context(), events.EventStream, activated, bus.All, func(event events.Event) { w.news <- event })
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(stop)
}

// begin starts a trainer whose steps take so long that a pause of one shows.
func (w *watched) begin(node string) *exec.Cmd {
	w.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), "REKNIT_NATS_URL="+w.url, "REKNIT_CLUSTER="+clusterName, "REKNIT_LOG_LEVEL=ERROR",
		"REKNIT_TRAINER_NODE="+node, "REKNIT_TRAINER_TEXT="+w.text, "REKNIT_TRAINER_STEPS=1000000", "REKNIT_TRAINER_GLOBAL_BATCH=144")
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	return process
}

// works waits until each of the nodes has made its first step under a plan of so many nodes, and returns how long a usual step takes.
func (w *watched) works(generation uint64, nodes ...string) (step time.Duration) {
	w.Helper()
	missing := slices.Clone(nodes)
	for deadline := time.After(patience); len(missing) > 0; {
		select {
		case event := <-w.news:
			activation, err := events.Open[events.Activation](event)
			if err != nil {
				w.Fatal(err)
			}
			if activation.Generation >= generation {
				missing = slices.DeleteFunc(missing, func(node string) bool { return node == activation.Node })
				step = time.Duration(activation.StepSeconds * float64(time.Second))
			}
		case <-deadline:
			w.Fatalf("%v do not work under plan %d within %v", missing, generation, patience)
		}
	}
	return step
}

// judge expects that a change is one trace: whole, through all who have a part in it, and without a pause.
func (w *watched) judge(rootName, rootWho string, step time.Duration, expected ...string) {
	w.Helper()
	var trace []span
	var missing []string
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		trace = w.spans.with(rootName, rootWho)
		missing = slices.DeleteFunc(slices.Clone(expected), func(name string) bool {
			return slices.ContainsFunc(trace, func(s span) bool { return s.who+" "+s.name == name })
		})
		if len(missing) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(missing) > 0 {
		w.Fatalf("the trace of %s has no span %s; it has\n%s", rootName, strings.Join(missing, ", "), story(trace))
	}
	known := map[string]bool{}
	for _, s := range trace {
		known[s.id] = true
	}
	for _, s := range trace {
		isRoot := s.name == rootName && s.who == rootWho
		if isRoot != (s.parent == "") {
			w.Errorf("%s of %s: expected one root, %s of %s", s.name, s.who, rootName, rootWho)
		}
		if s.parent != "" && !known[s.parent] {
			w.Errorf("%s of %s is under a span that did not come", s.name, s.who)
		}
	}
	pause, after := longestPause(trace)
	w.Logf("%s: %d spans in %v, the longest pause %v", rootName, len(trace), last(trace).Sub(trace[0].begin), pause)
	if pause > step/2 {
		w.Errorf("for %v, after %s of %s, nothing tells what was waited for (a step takes %v):\n%s", pause, after.name, after.who, step, story(trace))
	}
}

func last(trace []span) (end time.Time) {
	for _, s := range trace {
		if s.end.After(end) {
			end = s.end
		}
	}
	return end
}

// longestPause returns for how long no span was open, and which had ended before.
func longestPause(trace []span) (pause time.Duration, after span) {
	latest := trace[0]
	for _, s := range trace {
		if between := s.begin.Sub(latest.end); between > pause {
			pause, after = between, latest
		}
		if s.end.After(latest.end) {
			latest = s
		}
	}
	return pause, after
}

func story(trace []span) string {
	var all strings.Builder
	for _, s := range trace {
		fmt.Fprintf(&all, "%10v %10v %s %s\n", s.begin.Sub(trace[0].begin).Round(time.Millisecond), s.end.Sub(s.begin).Round(time.Millisecond), s.who, s.name)
	}
	return all.String()
}

func TestAFailureAndAJoinAreEachOneTraceFromTheFirstWordToTheLastReceipt(t *testing.T) {
	w := watch(t)
	third := w.begin("n3")
	w.begin("n1")
	w.begin("n2")
	w.works(1, "n1", "n2", "n3")
	if err := third.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	step := w.works(2, "n1", "n2")
	w.judge("send node.lost", "/monitor", step,
		"negotiator process node.lost",
		"/node/n1 send negotiation.consented", "/node/n2 send negotiation.consented",
		"planner process plan.requested", "negotiator process plan.proposed",
		"restorer process restoration.requested", "negotiator process restoration.planned",
		"/node/n1 send plan.activated", "/node/n2 send plan.activated")
	w.begin("n4")
	step = w.works(3, "n1", "n2", "n4")
	w.judge("send membership.join-requested", "/node/n4", step,
		"monitor process membership.join-requested", "negotiator process membership.join-requested",
		"/node/n1 send negotiation.consented", "/node/n2 send negotiation.consented", "/node/n4 send negotiation.consented",
		"planner process plan.requested", "restorer process restoration.requested",
		"/node/n1 send negotiation.promised", "/node/n4 send shard.received", "restorer process shard.received",
		"/node/n1 send plan.activated", "/node/n2 send plan.activated", "/node/n4 send plan.activated")
}
