package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/internal/scene"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// liveLog is the log of the cluster of failure.yaml: it asked for its first plan, and committed the current one.
func liveLog(t *testing.T) (url string, say func(events.Event)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	b, url := scene.Begin(t, "failure")
	say = func(event events.Event) {
		t.Helper()
		if _, err := b.Publish(ctx, event); err != nil {
			t.Fatal(err)
		}
	}
	return url, say
}

var negotiator = events.Speaker{Source: "/negotiator", Cluster: "failure"}

// first is the request for the first plan of the cluster of failure.yaml, and that plan.
func first(t *testing.T) (events.PlanRequest, *events.Plan) {
	t.Helper()
	q, err := load(example("failure"))
	if err != nil {
		t.Fatal(err)
	}
	request, current := q.Request, q.Request.Current
	request.Negotiation, request.Generation, request.Current, request.Changes, request.Nodes = "first", 1, nil, nil,
		q.before
	return request, current
}

func requested(request events.PlanRequest) events.Event {
	return negotiator.First(time.Unix(1, 0), "r"+fmt.Sprint(request.Generation), events.PlanRequested,
		request.Negotiation, &request)
}

func committed(plan *events.Plan) events.Event {
	return negotiator.First(time.Unix(2, 0), "c"+fmt.Sprint(plan.Generation), events.PlanCommitted,
		fmt.Sprint(plan.Generation), plan)
}

func TestALiveClusterIsPlannedAsTheSameFileWouldBe(t *testing.T) {
	url, say := liveLog(t)
	request, plan := first(t)
	say(requested(request))
	say(committed(plan))
	q, err := load(example("failure"))
	if err != nil {
		t.Fatal(err)
	}
	q.Settings.MinReplicas = usualMinReplicas
	q.Request.SecondsBetweenFailures *= 6.0 / 5 // one node less to fail
	q.Assumed = append(q.Assumed, "no trainer is there now: the nodes are those of the last request for a plan")
	answer, err := q.answer()
	if err != nil {
		t.Fatal(err)
	}
	want := told(t, q, answer)
	if got := printed(t, "--nats", url, "--failed", "n5", "--why"); got != want {
		t.Errorf("the live cluster:\n%s\nexpected, as from the file:\n%s", got, want)
	}
}

func TestWhatWasMeasuredSinceTheLastPlanCounts(t *testing.T) {
	url, say := liveLog(t)
	request, plan := first(t)
	say(requested(request))
	say(committed(plan))
	monitor, node := events.Speaker{Source: "/monitor", Cluster: "failure"},
		events.Speaker{Source: "/node/n2", Cluster: "failure"}
	measured := events.Measurement{From: "n1", To: "n2", RoundTripSeconds: 0.5, BandwidthBytesPerSecond: 7}
	say(monitor.First(time.Unix(3, 0), "m", events.LinkMeasured, "n1_n2", &measured))
	say(node.First(time.Unix(3, 0), "p", events.NodeProfiled, "n2",
		&events.Profile{Node: "n2", SpeedFactor: 0.25, Step: 9}))
	b, err := connect.Flags{URL: url}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	q, err := Ask(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, link := range q.Request.Links {
		if link.Measurement == measured {
			links++
		}
	}
	if links != 1 || len(q.Request.Links) != len(request.Links)+1 { // the file names one pair, another one, both ways
		t.Errorf("%d of %d links are the measured one, expected 1 of %d", links, len(q.Request.Links),
			len(request.Links)+1)
	}
	for _, device := range q.Request.Nodes {
		if want := map[bool]float64{true: 0.25, false: 1}[device.Node == "n2"]; device.SpeedFactor != want {
			t.Errorf("%s: speed %v, expected %v", device.Node, device.SpeedFactor, want)
		}
	}
}

func TestAGenerationUnderNegotiationIsPlannedAsItWasAskedFor(t *testing.T) {
	url, say := liveLog(t)
	request, plan := first(t)
	say(committed(plan))
	request.Generation, request.Negotiation, request.Current, request.Nodes = 2, "second", plan, request.Nodes[:5]
	request.Changes = []events.Change{{Kind: events.ChangeLeave, Node: "n6", Cause: "e"}}
	say(requested(request))
	output := printed(t, "--cluster", "failure", "--nats", url)
	for _, says := range []string{"generation 2", "leave of n6", "asked for and is not committed"} {
		if !strings.Contains(output, says) {
			t.Errorf("expected %q in\n%s", says, output)
		}
	}
}

func TestWhereNoPlanWasEverAskedForItIsSaidWhoLacks(t *testing.T) {
	url, _ := liveLog(t)
	expect := func(says string) {
		t.Helper()
		err := run(io.Discard, "--cluster", "failure", "--nats", url)
		if err == nil || errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, expected %q", err, says)
		}
	}
	expect("no service acts for it: name by --cluster the one that they serve, or start some: reknit up --cluster failure")
	there, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	_, err = there.Subscribe(events.LeaseSubject("failure", "planner", ""), func(ask *nats.Msg) { ask.Respond(nil) })
	if err := errors.Join(err, there.Flush()); err != nil {
		t.Fatal(err)
	}
	expect("no trainer is there")
	beat(t, there, "n1")
	expect("though 1 node is there: reknit explain says for whom the first one waits")
}

// beat sends heartbeats of nodes until the test ends.
func beat(t *testing.T, conn *nats.Conn, nodes ...string) {
	ticker := time.NewTicker(50 * time.Millisecond)
	t.Cleanup(ticker.Stop)
	go func() {
		for t.Context().Err() == nil {
			for _, node := range nodes {
				conn.Publish(events.PulseSubject("failure", node), nil)
			}
			<-ticker.C
		}
	}()
}

func TestALivePlanIsAPreviewThatSaysWhoIsNotThere(t *testing.T) {
	url, say := liveLog(t)
	request, plan := first(t)
	say(requested(request))
	say(committed(plan))
	there, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	beat(t, there, "n1", "n2", "n3", "n4")
	output := printed(t, "--nats", url)
	for _, says := range []string{"A preview for failure, which changes nothing", "what if nothing changed", "would be kept as it is",
		"(n5, n6: not heard, and counted as there)"} {
		if !strings.Contains(output, says) {
			t.Errorf("expected %q in\n%s", says, output)
		}
	}
	say(negotiator.First(time.Unix(3, 0), "end", events.TrainingCompleted, "failure",
		&events.JobEnd{Generation: 1, Step: 40, Nodes: []string{"n1"}}))
	if output := printed(t, "--nats", url); !strings.Contains(output, "(the job is complete, and nothing is left to plan)") {
		t.Errorf("of a complete job it prints\n%s", output)
	}
}

func TestWhereSeveralClustersShareAServerTheyAreNamed(t *testing.T) {
	url, say := liveLog(t)
	request, _ := first(t)
	expected := func(says string) {
		t.Helper()
		err := run(io.Discard, "--nats", url)
		if err == nil || !strings.HasPrefix(err.Error(), "--cluster: ") || !strings.HasSuffix(err.Error(), says) {
			t.Errorf("error %v, expected that --cluster is to be one of %s", err, says)
		}
	}
	say(requested(request))
	another, err := bus.Connect(t.Context(), bus.Config{URL: url, Name: "test", Cluster: "another"})
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	if err := another.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	request.Cluster = "another"
	theirs := requested(request)
	theirs.Cluster, theirs.ID = "another", "theirs"
	if _, err := another.Publish(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	expected("another (nobody lives there); failure (nobody lives there)")
}

func TestOnlyNodesOfTheClusterCanFail(t *testing.T) {
	url, say := liveLog(t)
	request, plan := first(t)
	say(requested(request))
	say(committed(plan))
	for _, nodes := range []string{"n9", "n5,n5"} {
		err := run(io.Discard, "--cluster", "failure", "--nats", url, "--failed", nodes)
		if !errors.As(err, &tell.UsageError{}) {
			t.Errorf("--failed %s: error %v, expected a usage error", nodes, err)
		}
	}
}
