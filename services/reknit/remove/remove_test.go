package remove

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// site is a server with two clusters, of which nobody lives.
type site struct {
	t   *testing.T
	url string
	bus map[string]*bus.Bus
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Setenv("REKNIT_CLUSTER", "")
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	s := &site{t: t, url: server.URL(), bus: map[string]*bus.Bus{}}
	for _, name := range []string{"first", "tried"} {
		if s.bus[name], err = bus.Connect(t.Context(), bus.Config{URL: s.url, Name: "test", Cluster: name}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.bus[name].Close)
		if err := s.bus[name].Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// remove runs the command for somebody who types an answer.
func (s *site) remove(typed io.Reader, arguments ...string) (printed string, err error) {
	var output strings.Builder
	command := Command()
	command.SetArgs(append([]string{"remove", "--nats", s.url}, arguments...))
	command.SetIn(typed)
	command.SetOut(&output)
	err = command.ExecuteContext(s.t.Context())
	return output.String(), err
}

// has lists the streams of a cluster.
func (s *site) has(name string) (all []string) {
	s.t.Helper()
	names := s.bus["first"].JetStream().StreamNames(s.t.Context())
	for stream := range names.Name() {
		if strings.HasSuffix(stream, "_"+name) {
			all = append(all, stream)
		}
	}
	if names.Err() != nil {
		s.t.Fatal(names.Err())
	}
	return all
}

func TestAClusterIsRemovedWholeOnceItsNameWasTyped(t *testing.T) {
	s := newSite(t)
	of := len(s.has("first"))
	if printed, err := s.remove(strings.NewReader("yes\n"), "tried"); err == nil || len(s.has("tried")) != of {
		t.Errorf("its name was not typed: %v, %s", err, printed)
	}
	printed, err := s.remove(strings.NewReader("tried\n"), "tried")
	if err != nil || !strings.Contains(printed, "REKNIT_EVENTS_tried") {
		t.Errorf("%v, %s", err, printed)
	}
	if left := s.has("tried"); len(left) > 0 || len(s.has("first")) != of {
		t.Errorf("of it %v is left, of the other %d of %d", left, len(s.has("first")), of)
	}
	if _, err := s.remove(strings.NewReader(""), "tried"); err == nil || !strings.Contains(err.Error(), "there are: first") {
		t.Errorf("one that is not there: %v", err)
	}
	_, err = (connect.Flags{URL: s.url, Cluster: "tried"}).Open(t.Context())
	if want := "there is no cluster tried on this installation; there are: first"; !errors.As(err, &tell.UsageError{}) || err.Error() != want {
		t.Errorf("a command that names one that is not there: %v, expected %s", err, want)
	}
}

func TestWhoNamesNoClusterIsToldThatOneIsExpected(t *testing.T) {
	s := newSite(t)
	for says, names := range map[string][]string{"reknit cluster remove NAME": nil, "got 2: a b": {"a", "b"}, `got "a.b"`: {"a.b"}} {
		if _, err := s.remove(strings.NewReader(""), names...); !errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, expected that it says %q", names, err, says)
		}
	}
}

func TestAScriptSaysYesBeforehand(t *testing.T) {
	s := newSite(t)
	nobody, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	stdin := os.Stdin
	os.Stdin = nobody
	defer func() { os.Stdin = stdin }()
	if _, err := s.remove(nobody, "tried"); !errors.As(err, &tell.UsageError{}) || len(s.has("tried")) == 0 {
		t.Errorf("without --yes: %v", err)
	}
	if _, err := s.remove(nobody, "tried", "--yes"); err != nil || len(s.has("tried")) > 0 {
		t.Errorf("with --yes: %v", err)
	}
}

// say publishes a fact of a cluster.
func (s *site) say(cluster, source string, kind events.Kind, subject string, payload events.Payload) {
	s.t.Helper()
	event := events.Speaker{Source: source, Cluster: cluster}.First(time.Now(), "test", kind, subject, payload)
	if _, err := s.bus[cluster].Publish(s.t.Context(), event); err != nil {
		s.t.Fatal(err)
	}
}

// plan commits one of the cluster that was tried.
func (s *site) plan() {
	s.t.Helper()
	s.say("tried", "/negotiator", events.PlanCommitted, "1", &events.Plan{
		Cluster: "tried", Generation: 1, Policy: "repipeline", Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Nodes:     []events.Member{{Node: "n1", Incarnation: "i", Address: "a"}},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{{Node: "n1", Layers: events.Range{End: 1}}}}},
	})
}

// Who is cut off from the server is heard no more than who is gone.
func TestAClusterWhoseNodesMayBeCutOffIsNotRemovedByYes(t *testing.T) {
	s := newSite(t)
	s.plan()
	printed, err := s.remove(strings.NewReader("tried\n"), "tried", "--yes")
	if err == nil || !strings.Contains(err.Error(), "--force") || len(s.has("tried")) == 0 || !strings.Contains(printed, "cut off") {
		t.Fatalf("%v, %s", err, printed)
	}
	s.say("tried", "/negotiator", events.TrainingCompleted, "tried", &events.JobEnd{Generation: 1, Step: 9, Nodes: []string{"n1"}})
	if printed, err = s.remove(strings.NewReader(""), "tried", "--yes"); err != nil || strings.Contains(printed, "cut off") {
		t.Errorf("its job is complete: %v, %s", err, printed)
	}
}

func TestAClusterWhoseNodesMayBeCutOffIsRemovedByItsNameOrByForce(t *testing.T) {
	for _, arguments := range [][]string{{"tried"}, {"tried", "--force"}} {
		s := newSite(t)
		s.plan()
		printed, err := s.remove(strings.NewReader("tried\n"), arguments...)
		if err != nil || !strings.Contains(printed, "no heartbeat came for 1.2s") || len(s.has("tried")) > 0 {
			t.Errorf("%v: %v, %s", arguments, err, printed)
		}
	}
}

// beat sends heartbeats of a node of a cluster until the test ends.
func (s *site) beat(cluster, node string) {
	pulse, _ := json.Marshal(events.Pulse{Node: node, Incarnation: "i", Number: 1})
	go func() {
		for s.t.Context().Err() == nil {
			s.bus[cluster].Conn().Publish(events.PulseSubject(cluster, node), pulse)
			time.Sleep(50 * time.Millisecond)
		}
	}()
}

func TestAClusterThatLivesIsNotRemovedAndIsTheOneThatIsMeant(t *testing.T) {
	s := newSite(t)
	if _, err := (connect.Flags{URL: s.url}).Open(t.Context()); !errors.As(err, &tell.UsageError{}) ||
		!strings.Contains(err.Error(), "first (nobody lives there); tried (nobody lives there)") {
		t.Errorf("where nobody lives none is meant: %v", err)
	}
	s.beat("first", "n1")
	if _, err := s.remove(strings.NewReader("first\n"), "first"); err == nil || !strings.Contains(err.Error(), "it lives: 1 node") {
		t.Errorf("with a node that lives: %v", err)
	}
	meant := func(name string) {
		t.Helper()
		b, err := (connect.Flags{URL: s.url}).Open(t.Context())
		if err != nil || b.Cluster() != name {
			t.Fatalf("%v, expected that %s is meant", err, name)
		}
		b.Close()
	}
	meant("first")
	asked := events.LeaseSubject("tried", "planner", "")
	if _, err := s.bus["tried"].Conn().Subscribe(asked, func(ask *nats.Msg) { ask.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	if err := s.bus["tried"].Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.remove(strings.NewReader("tried\n"), "tried"); err == nil || !strings.Contains(err.Error(), "it lives: planner") {
		t.Errorf("with a service that works: %v", err)
	}
}
