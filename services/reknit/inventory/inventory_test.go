package inventory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/internal/scene"
	"github.com/reknit/reknit/shared/bus"
)

// site is a cluster of which the test is everybody.
type site struct {
	t    *testing.T
	bus  *bus.Bus
	url  string
	said int
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel() // each listens for a second, again and again
	b, url := scene.Begin(t, "c")
	return &site{t: t, bus: b, url: url}
}

func (s *site) say(kind events.Kind, source, subject string, payload events.Payload) {
	s.t.Helper()
	s.said++
	event := events.Speaker{Source: source, Cluster: "c"}.First(time.Now(), fmt.Sprint(s.said), kind, subject, payload)
	if _, err := s.bus.Publish(s.t.Context(), event); err != nil {
		s.t.Fatalf("%s: %v", kind, err)
	}
}

var layer = events.LayerProfile{ParameterBytes: 1, OptimizerBytes: 1, ForwardSeconds: 1, BackwardSeconds: 1}

var job = events.Job{Digest: events.Digest(nil), Layers: []events.LayerProfile{layer, layer}, GlobalBatch: 1, MicroBatch: 1}

func (s *site) join(node, incarnation string) {
	s.t.Helper()
	s.say(events.JoinRequested, "/node/"+node, node,
		&events.Join{Node: node, Incarnation: incarnation, Address: node + ":1", Site: "left", MemoryBytes: 1 << 30, Job: job})
}

// plan commits a plan under which n1 and n2 train and n3 has no place.
func (s *site) plan() {
	s.t.Helper()
	s.planned(job, events.Predicted{StepSeconds: 0.5, PeakBytes: map[string]int64{"n1": 512 << 20}})
}

// planned is plan of a job and a prediction.
func (s *site) planned(job events.Job, predicted events.Predicted) (plan events.Plan) {
	s.t.Helper()
	var members []events.Member
	var devices []events.Device
	for _, node := range []string{"n1", "n2", "n3"} {
		s.join(node, "i")
		member := events.Member{Node: node, Incarnation: "i", Address: node + ":1", Site: "left"}
		members = append(members, member)
		devices = append(devices, events.Device{Member: member, MemoryBytes: 1 << 30, SpeedFactor: 0.5})
	}
	link := events.Link{Measurement: events.Measurement{From: "n1", To: "n2", RoundTripSeconds: 0.001, BandwidthBytesPerSecond: 1 << 20}}
	s.say(events.PlanRequested, "/negotiator", "g", &events.PlanRequest{Negotiation: "g", Cluster: "c", Generation: 1, Nodes: devices,
		Job: job, Links: []events.Link{link}})
	plan = events.Plan{
		Cluster: "c", Generation: 1, Policy: "repipeline", Nodes: members, Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{
			{Node: "n1", Layers: events.Range{End: 1}}, {Node: "n2", Layers: events.Range{First: 1, End: 2}}}}},
		Predicted: predicted,
	}
	s.say(events.PlanCommitted, "/negotiator", "1", &plan)
	return plan
}

// beat sends heartbeats of nodes, of the incarnation i if the pulse names no other, until the test ends.
func (s *site) beat(nodes ...string) {
	s.beatWith(func(step uint64) events.Pulse {
		return events.Pulse{Number: step, Generation: 1, Step: 40 + step, StepSeconds: 0.25, Loss: 2.5}
	}, nodes...)
}

func (s *site) beatWith(pulseAt func(step uint64) events.Pulse, nodes ...string) {
	ticker := time.NewTicker(50 * time.Millisecond)
	s.t.Cleanup(ticker.Stop)
	go func() {
		for step := uint64(1); s.t.Context().Err() == nil; step++ {
			for _, node := range nodes {
				told := pulseAt(step)
				told.Node, told.Incarnation = node, cmp.Or(told.Incarnation, "i")
				pulse, _ := json.Marshal(told)
				s.bus.Conn().Publish(events.PulseSubject("c", node), pulse)
			}
			select {
			case <-ticker.C:
			case <-s.t.Context().Done():
			}
		}
	}()
}

// serve answers as services that act for the cluster.
func (s *site) serve(services ...string) {
	s.t.Helper()
	for _, service := range services {
		s.say(events.LeaseTaken, "/"+service, service, &events.Lease{Service: service, Instance: "first"})
		if _, err := s.bus.Conn().Subscribe(events.LeaseSubject("c", service, ""), func(ask *nats.Msg) { ask.Respond(nil) }); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.bus.Conn().Flush(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) run(command *cobra.Command, arguments ...string) (printed string, err error) {
	var output strings.Builder
	command.SetArgs(append(arguments, "--nats", s.url, "--cluster", "c"))
	command.SetOut(&output)
	err = command.ExecuteContext(s.t.Context())
	return output.String(), err
}

// answered runs a command with --json.
func answered[T any](s *site, command *cobra.Command, arguments ...string) (found T, err error) {
	s.t.Helper()
	printed, err := s.run(command, append(arguments, "--json")...)
	if unread := json.Unmarshal([]byte(printed), &found); unread != nil {
		s.t.Fatalf("%v, %v in %q", err, unread, printed)
	}
	return found, err
}

func TestEachNodeHasTheStateThatTheLogAndItsHeartbeatsTell(t *testing.T) {
	s := newSite(t)
	s.plan()
	state := func(kind events.Kind, node, reason string) {
		s.say(kind, "/monitor", node, &events.NodeState{Node: node, Incarnation: "i", Reason: reason})
	}
	s.beat("n1", "n3")
	expect := func(when, want string) {
		t.Helper()
		nodes, err := answered[[]overlay.Node](s, Nodes())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, node := range nodes {
			got = append(got, node.Node+" "+node.State)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %v, expected %s", when, got, want)
		}
	}
	expect("under the plan", "n1 training, n2 silent, n3 spare")
	state(events.NodeSuspected, "n1", "late")
	s.say(events.LeaveRequested, "/user", "n3", &events.Leave{Node: "n3", Reason: "drained"})
	s.join("n10", "i")
	s.join("n4", "i")
	expect("with some that come and go", "n1 suspected, n2 silent, n3 leaving, n4 joining, n10 joining")
	state(events.NodeCleared, "n1", "")
	state(events.NodeLost, "n2", "dead")
	s.say(events.MembershipRefused, "/negotiator", "n3", &events.Refusal{Node: "n3", Refused: events.ChangeLeave, Reason: "it is needed"})
	s.say(events.MembershipRefused, "/negotiator", "n4",
		&events.Refusal{Node: "n4", Refused: events.ChangeJoin, Incarnation: "i", Reason: "another job"})
	expect("when that was answered", "n1 training, n2 lost, n3 spare, n10 joining")
	s.join("n2", "later")
	expect("with a lost one that is back", "n1 training, n2 joining, n3 spare, n10 joining")
	s.say(events.NodeExited, "/node/n1", "n1", &events.Exit{Node: "n1", Incarnation: "i", Reason: "complete", Expected: true})
	expect("with one that is done", "n1 ended, n2 joining, n3 spare, n10 joining")
}

func TestWhoWasGivenUpIsShownWhileItsAgentRunsOn(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.beat("n1", "n2", "n3", "n4")
	for _, node := range []string{"n4", "n5"} {
		s.join(node, "i")
		s.say(events.NodeLost, "/monitor", node, &events.NodeState{Node: node, Incarnation: "i", Reason: "its trainer hangs"})
	}
	nodes, err := answered[[]overlay.Node](s, Nodes())
	if err != nil || len(nodes) != 4 || nodes[3].Node != "n4" || nodes[3].State != overlay.Lost || nodes[3].Reason != "its trainer hangs" {
		t.Errorf("%+v, %v", nodes, err)
	}
	s.say(events.TrainingCompleted, "/negotiator", "c", &events.JobEnd{Generation: 1, Step: 9, Nodes: []string{"n1", "n2", "n3"}})
	if nodes, err := answered[[]overlay.Node](s, Nodes()); err != nil || len(nodes) != 3 {
		t.Errorf("once the job is complete: %+v, %v", nodes, err)
	}
}

func TestNodesAreATableForPeople(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.beat("n1", "n2", "n3")
	printed, err := s.run(Nodes())
	lines := strings.Split(printed, "\n")
	if err != nil || len(lines) != 5 {
		t.Fatalf("%v, %q", err, printed)
	}
	for _, says := range []string{"n1 ", "training", "pipeline 0, stage 0", "512 MiB of 1 GiB", "0.5", "250 ms", "left"} {
		if !strings.Contains(lines[1], says) {
			t.Errorf("expected %q in %q", says, lines[1])
		}
	}
}

func TestNodesComeInTheOrderOfTheirPlacesAndThenOfTheirNames(t *testing.T) {
	place := func(name, key string, stage int) overlay.Node {
		node := overlay.Node{Node: key, Name: name}
		if stage >= 0 {
			pipeline := 0
			node.Pipeline, node.Stage = &pipeline, &stage
		}
		return node
	}
	all := []overlay.Node{place("n10", "a", -1), place("n2", "b", -1), place("n7", "c", 1), place("n8", "d", 0)}
	slices.SortStableFunc(all, byPlace)
	var got []string
	for _, node := range all {
		got = append(got, node.Name)
	}
	if strings.Join(got, " ") != "n8 n7 n2 n10" {
		t.Errorf("they come as %v", got)
	}
}

func TestALinkIsAsItWasSaidLast(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.say(events.LinkMeasured, "/monitor", "n1_n3",
		&events.Measurement{From: "n1", To: "n3", RoundTripSeconds: 0.002, BandwidthBytesPerSecond: 3 << 20, Uncertainty: 0.35})
	s.say(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	s.say(events.LinkLost, "/monitor", "n2_n3", &events.LinkState{From: "n2", To: "n3", Reason: "reset"})
	printed, err := s.run(Links(), "n1", "n2")
	for _, says := range []string{"n1    n2  1 ms        1 MiB/s    50 %, once    cut on purpose",
		"n1    n3  2 ms        3 MiB/s    35 %          measured ", "n2    n1  -           -          -             cut on purpose",
		"n3    n2  -           -          -             lost"} {
		if err != nil || !strings.Contains(printed, says) {
			t.Errorf("%v, expected %q in\n%s", err, says, printed)
		}
	}
	of, err := answered[linkList](s, Links(), "n3")
	if err != nil || len(of.Links) != 3 {
		t.Errorf("those of n3: %v, %+v, expected three directions", err, of)
	}
}

func TestPeopleReadAndSayNamesWhereIdsAreKeysAndProgramsReadBoth(t *testing.T) {
	s, first, second := newSite(t), "UA"+strings.Repeat("B", 54), "UA"+strings.Repeat("C", 54)
	for name, key := range map[string]string{"gpu-1": first, "gpu-2": second} {
		s.say(events.JoinRequested, "/node/"+key, key,
			&events.Join{Node: key, Name: name, Incarnation: "i", Address: "a:1", MemoryBytes: 1 << 30, Job: job})
	}
	s.say(events.LinkMeasured, "/monitor", "link",
		&events.Measurement{From: first, To: second, RoundTripSeconds: 0.002, BandwidthBytesPerSecond: 3 << 20})
	printed, err := s.run(Nodes())
	if err != nil || !strings.Contains(printed, "\ngpu-1  joining") || strings.Contains(printed, first) {
		t.Errorf("%v, expected a name in place of the key in\n%s", err, printed)
	}
	nodes, err := answered[[]overlay.Node](s, Nodes())
	if err != nil || len(nodes) != 2 || nodes[0].Node != first || nodes[0].Name != "gpu-1" {
		t.Errorf("%v, expected the key and the name in %+v", err, nodes)
	}
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.MembershipRefused, "/negotiator", second, &events.Refusal{Node: second, Refused: events.ChangeLeave, Reason: "it is needed"})
	if overview, _ := answered[Overview](s, Status()); len(overview.Names) != 1 || overview.Names[second] != "gpu-2" {
		t.Errorf("expected the name of the one who was refused, got %+v", overview.Names)
	}
	for _, meant := range []string{"gpu-2", second, second[:6]} {
		if printed, err := s.run(Links(), meant); err != nil || !strings.Contains(printed, "gpu-1  gpu-2  2 ms") {
			t.Errorf("links of %s: %v, %s", meant, err, printed)
		}
	}
}

func TestOfANodeThatHasEndedTheLastStepIsTold(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.beat("n3")
	s.say(events.TrainingDigested, "/node/n1", "n1", &events.Digests{Node: "n1", Generation: 1, Step: 90, Final: true})
	s.say(events.NodeExited, "/node/n1", "n1", &events.Exit{Node: "n1", Incarnation: "i", Reason: "complete", Expected: true})
	s.say(events.NodeLost, "/monitor", "n2", &events.NodeState{Node: "n2", Incarnation: "i", Reason: "dead", Step: 88})
	printed, err := s.run(Nodes())
	for _, says := range []string{`n1 +ended .* 90 `, `n2 +lost .* 88 `} {
		if err != nil || !regexp.MustCompile(says).MatchString(printed) {
			t.Errorf("%v, expected %s in\n%s", err, says, printed)
		}
	}
	s.say(events.TrainingCompleted, "/negotiator", "c", &events.JobEnd{Generation: 1, Step: 91, Nodes: []string{"n1", "n2"}})
	if printed, err = s.run(Nodes()); err != nil || !regexp.MustCompile(`n2 +ended .* 91 `).MatchString(printed) {
		t.Errorf("of a complete job: %v\n%s", err, printed)
	}
}

func TestLinksThatAreAllAsUsualAreNotSaidToBeUnknown(t *testing.T) {
	var told strings.Builder
	linkList{Usual: &events.Usual{RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e9}}.tell(&told)
	if said := told.String(); !strings.HasPrefix(said, "The others are like the usual one") {
		t.Errorf("said %q", said)
	}
}
