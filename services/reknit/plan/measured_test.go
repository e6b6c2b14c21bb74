package plan

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
)

// asks is what the log at a URL has asked now.
func asks(t *testing.T, url string) Question {
	t.Helper()
	b, err := connect.Flags{URL: url}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	q, err := Ask(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// second has a plan asked for under the first one, of which a step was measured to take so long, and committed as that was.
func second(t *testing.T, say func(events.Event), stepSeconds float64) (request events.PlanRequest, plan events.Plan) {
	t.Helper()
	request, current := first(t)
	say(requested(request))
	say(committed(current))
	plan = *current
	plan.Generation, plan.Parent = 2, events.Digest([]byte("first"))
	request.Generation, request.Negotiation, request.Current, request.CurrentStepSeconds = 2, "second", current, stepSeconds
	say(requested(request))
	say(committed(&plan))
	return request, plan
}

// tells has a node say something.
func tells(say func(events.Event), kind events.Kind, node string, what events.Payload) {
	speaker := events.Speaker{Source: "/node/" + node, Cluster: "failure"}
	say(speaker.First(time.Unix(3, 0), fmt.Sprint(what), kind, node, what))
}

func paces(say func(events.Event), generation uint64, seconds float64, nodes ...string) {
	for _, node := range nodes {
		tells(say, events.PlanMeasured, node, &events.Pace{Node: node, Generation: generation, StepSeconds: seconds, Steps: 12})
	}
}

// profiles has the nodes of a plan tell that their layers take so many times what a job says, and keep so many bytes.
func profiles(say func(events.Event), job events.Job, plan events.Plan, times float64, activations int64, nodes ...string) {
	for _, node := range nodes {
		stage, _ := plan.Holds(node)
		told := &events.Profile{Node: node, SpeedFactor: 1, Generation: plan.Generation, FirstLayer: stage.First,
			PeakBytes: 1 << 30, OtherBytes: 1 << 20}
		for layer := stage.First; layer < stage.End; layer++ {
			said := job.Layers[layer]
			told.Layers = append(told.Layers, events.LayerCost{ForwardSeconds: times * said.ForwardSeconds,
				BackwardSeconds: times * said.BackwardSeconds, ActivationBytes: activations})
		}
		told.MicroBatchSeconds = times * job.MicroBatchSeconds(stage)
		tells(say, events.NodeProfiled, node, told)
	}
}

// everybody trains under the plans of failure.yaml before n5 fails.
var everybody = []string{"n1", "n2", "n3", "n4", "n5", "n6"}

func TestTheMeasuredStepIsThatOfThePlanInForceAndOfNoOther(t *testing.T) {
	for what, log := range map[string]struct {
		before float64 // seconds
		tell   func(say func(events.Event))
		want   float64
	}{
		"nothing is measured": {tell: func(func(events.Event)) {}},
		"a step of the plan before is": {before: 10, tell: func(say func(events.Event)) {
			paces(say, 1, 10, "n1", "n2", "n3")
		}},
		"one of the plan in force is, too": {before: 10, tell: func(say func(events.Event)) {
			paces(say, 2, 3, "n1", "n2", "n3")
		}, want: 3},
		"one of three nodes lies":         {tell: func(say func(events.Event)) { paces(say, 2, 3, "n1", "n2"); paces(say, 2, 900, "n3") }, want: 3},
		"others tell than those that may": {tell: func(say func(events.Event)) { paces(say, 2, 900, "n4", "n5", "n6") }},
	} {
		url, say := liveLog(t)
		second(t, say, log.before)
		log.tell(say)
		q := asks(t, url)
		answer, err := q.answer()
		if err != nil {
			t.Fatal(err)
		}
		if q.Request.CurrentStepSeconds != log.want {
			t.Errorf("%s: a step takes %v s, expected %v", what, q.Request.CurrentStepSeconds, log.want)
		}
		if got := answer.Plan.Predicted.StepSeconds; log.want > 0 && math.Abs(got-log.want) > 0.1 {
			t.Errorf("%s: the plan, which is the one in force, is predicted to take %v s", what, got)
		}
	}
}

func TestAStepOfThePlanInForceCountsWhileTheNextOneIsNegotiated(t *testing.T) {
	url, say := liveLog(t)
	_, plan := second(t, say, 0)
	paces(say, 2, 3, "n1", "n2", "n3")
	request, _ := first(t)
	request.Generation, request.Negotiation, request.Current, request.CurrentStepSeconds = 3, "third", &plan, 3
	say(requested(request))
	paces(say, 2, 5, "n2", "n3")
	if q := asks(t, url); q.Request.CurrentStepSeconds != 5 {
		t.Errorf("a step takes %v s: expected the median of 3, 5 and 5", q.Request.CurrentStepSeconds)
	}
}

func TestLayersAreTakenAsNodesMeasuredThem(t *testing.T) {
	url, say := liveLog(t)
	request, plan := second(t, say, 0)
	profiles(say, request.Job, plan, 3, 40<<20, everybody...)
	q := asks(t, url)
	for n, layer := range q.Request.Job.Layers {
		if want := 3 * request.Job.Layers[n].ForwardSeconds; math.Abs(layer.ForwardSeconds-want) > 1e-9 || layer.ActivationBytes != 40<<20 {
			t.Errorf("layer %d: %+v, expected %v s forward and 40 MiB of activations", n, layer, want)
		}
	}
	for i, node := range q.Request.Nodes {
		if math.Abs(node.SpeedFactor-1) > 1e-9 {
			t.Errorf("%s: speed %v beside layers as all measured them, expected 1", node.Node, node.SpeedFactor)
		}
		if want := request.Nodes[i].MemoryBytes - 1<<20; node.MemoryBytes != want || node.OtherBytes != 1<<20 {
			t.Errorf("%s: %d bytes beside %d others, expected %d beside 1 MiB", node.Node, node.MemoryBytes, node.OtherBytes, want)
		}
	}
	if request.Job.Layers[0].ActivationBytes == 40<<20 {
		t.Error("expected the log's own request untouched")
	}
}

// What a request says of layers is of words before it. One word since then is not more than one of them.
func TestOneNodesNewsOfLayersIsOneWordAmongOlderOnes(t *testing.T) {
	url, say := liveLog(t)
	request, current := first(t)
	say(requested(request))
	say(committed(current))
	profiles(say, request.Job, *current, 1, 1<<20, everybody...)
	plan := *current
	plan.Generation, plan.Parent = 2, events.Digest([]byte("first"))
	request.Generation, request.Negotiation, request.Current = 2, "second", current
	for i := range request.Nodes {
		request.Nodes[i].MemoryBytes -= 1 << 20
		request.Nodes[i].OtherBytes = 1 << 20
	}
	say(requested(request))
	say(committed(&plan))
	node := plan.Pipelines[0].Stages[0].Node
	profiles(say, request.Job, plan, 100, 1<<20, node)
	q := asks(t, url)
	for n, layer := range q.Request.Job.Layers {
		if want := request.Job.Layers[n].ForwardSeconds; math.Abs(layer.ForwardSeconds-want) > 1e-9 {
			t.Errorf("layer %d takes %v s, expected %v as most say", n, layer.ForwardSeconds, want)
		}
	}
	for i, device := range q.Request.Nodes {
		want := map[bool]float64{true: 0.01, false: 1}[device.Node == node]
		if math.Abs(device.SpeedFactor-want) > 1e-9 {
			t.Errorf("%s: speed %v, expected %v", device.Node, device.SpeedFactor, want)
		}
		if device.MemoryBytes != request.Nodes[i].MemoryBytes {
			t.Errorf("%s: %d bytes, expected %d as before: it needs the same beside its layers", device.Node, device.MemoryBytes,
				request.Nodes[i].MemoryBytes)
		}
	}
}

// joined tells of a join of the first node of a request, with a job.
func joined(request events.PlanRequest, job events.Job) events.Event {
	node := request.Nodes[0]
	speaker := events.Speaker{Source: "/node/" + node.Node, Cluster: "failure"}
	return speaker.First(time.Unix(1, 0), "join", events.JoinRequested, node.Node, &events.Join{Node: node.Node,
		Incarnation: node.Incarnation, Address: "127.0.0.1:1", MemoryBytes: node.MemoryBytes, Job: job})
}

func TestALayerOfWhichTheLogForgotTheWordsStaysAsTheRequestHasIt(t *testing.T) {
	url, say := liveLog(t)
	request, current := first(t)
	say(joined(request, request.Job))
	declared := request.Job
	request.Job.Layers = slices.Clone(declared.Layers)
	for i := range request.Job.Layers { // measured: three times what is declared
		request.Job.Layers[i].ForwardSeconds *= 3
		request.Job.Layers[i].BackwardSeconds *= 3
	}
	say(requested(request))
	say(committed(current))
	node := current.Pipelines[0].Stages[0]
	profiles(say, declared, *current, 6, 40<<20, node.Node) // one stage takes twice as long now
	q := asks(t, url)
	for n, layer := range q.Request.Job.Layers {
		want := request.Job.Layers[n].ForwardSeconds
		if n >= node.Layers.First && n < node.Layers.End {
			want *= 2
		}
		if math.Abs(layer.ForwardSeconds-want) > 1e-9 {
			t.Errorf("layer %d takes %v s, expected %v", n, layer.ForwardSeconds, want)
		}
	}
}

func TestTheWordOfANodeThatIsGoneCountsForNothingBesideOneThatIsThere(t *testing.T) {
	url, say := liveLog(t)
	request, current := first(t)
	say(requested(request))
	say(committed(current))
	stage := current.Pipelines[0].Stages[0].Layers
	gone := *current
	gone.Pipelines = []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{{Node: "gone", Layers: stage}}}}
	for _, stage := range current.Pipelines[0].Stages { // the only one to tell of these layers
		profiles(say, request.Job, *current, 3, 40<<20, stage.Node)
	}
	profiles(say, request.Job, gone, 0.01, 40<<20, "gone")
	for n, layer := range asks(t, url).Request.Job.Layers {
		if want := 3 * request.Job.Layers[n].ForwardSeconds; math.Abs(layer.ForwardSeconds-want) > 1e-9 {
			t.Errorf("layer %d takes %v s, expected %v", n, layer.ForwardSeconds, want)
		}
	}
}

func TestActivationsForWhichANodeHasNoRoomWereNotMeasured(t *testing.T) {
	url, say := liveLog(t)
	request, current := first(t)
	say(requested(request))
	say(committed(current))
	profiles(say, request.Job, *current, 1, request.Nodes[0].MemoryBytes, everybody...)
	for n, layer := range asks(t, url).Request.Job.Layers {
		if want := request.Job.Layers[n].ActivationBytes; layer.ActivationBytes != want {
			t.Errorf("layer %d keeps %d bytes, expected %d as declared", n, layer.ActivationBytes, want)
		}
	}
}
