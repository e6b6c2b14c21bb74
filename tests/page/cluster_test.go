package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/shared/service"
)

// cluster is a monitor with its page, and a test that is everybody else.
type cluster struct {
	t      *testing.T
	bus    *bus.Bus
	page   string // its address
	said   int
	sites  int
	layers int

	mutex      sync.Mutex
	generation uint64
	living     []string
	step       float64
	pace       float64 // steps a second; zero: training stands still
	stopped    time.Time
}

const incarnation = "1"

func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// newCluster starts a monitor and as many nodes, which have a plan of pipelines of so many stages.
func newCluster(t *testing.T, nodes, stages, sites int) *cluster {
	t.Helper()
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i+1)
	}
	return newClusterOf(t, names, stages, sites)
}

func newClusterOf(t *testing.T, names []string, stages, sites int) *cluster {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "test", Cluster: "opticks"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, bus: b, page: free(t), sites: sites, layers: 4 * stages, step: 1200, pace: 9, living: slices.Clone(names)}
	c.watch(server.URL())
	c.answerProbes()
	c.describe()
	c.measure()
	var joins []events.Change
	for _, node := range c.living {
		joins = append(joins, events.Change{Kind: events.ChangeJoin, Node: node, Cause: "none"})
	}
	c.change(joins, stages, func(string) {})
	go c.beat(t.Context())
	return c
}

// watch runs the monitor until the test ends.
func (c *cluster) watch(url string) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	config := monitor.Config{
		Common: service.Common{URL: url, Cluster: "opticks"}, PageAddress: c.page,
		Pause: time.Minute, GreatestTimeout: time.Hour, SiteFor: time.Minute, StalledFor: time.Minute,
		CorrelatedFor: time.Minute, HoursPerFailure: 24,
	}
	go func() { ended <- monitor.Run(ctx, config) }()
	c.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) { // it may not have been connected yet
			c.t.Error(err)
		}
	})
}

func (c *cluster) say(kind events.Kind, source, subject string, payload events.Payload) events.Event {
	c.t.Helper()
	c.said++
	event := events.Speaker{Source: source, Cluster: "opticks"}.First(time.Now(), fmt.Sprint(c.said), kind, subject, payload)
	if _, err := c.bus.Publish(c.t.Context(), event); err != nil {
		c.t.Fatalf("%s: %v", kind, err)
	}
	return event
}

func (c *cluster) members() (all []events.Member) {
	for _, node := range c.living {
		all = append(all, events.Member{Node: node, Incarnation: incarnation, Address: "127.0.0.1:9", Site: c.siteOf(node)})
	}
	return all
}

var sites = []string{"berlin", "lyon", "turin", "oslo", "porto", "vienna", "ghent", "zurich"}

func (c *cluster) siteOf(node string) string {
	if c.sites == 0 {
		return ""
	}
	var number int
	fmt.Sscanf(node, "n%d", &number)
	return sites[number%c.sites]
}

// plan is pipelines of about so many stages over those who live.
func (c *cluster) plan(stages int) events.Plan {
	pipelines := max(1, len(c.living)/stages)
	plan := events.Plan{
		Cluster: "opticks", Generation: c.generation + 1, Policy: "repipeline", Nodes: c.members(), ResumeStep: uint64(c.step),
		Data: events.Data{GlobalBatch: 4 * pipelines, MicroBatch: 1},
		Predicted: events.Predicted{StepSeconds: 0.108, StepSecondsLowerBound: 0.104, SamplesPerSecond: 9 * 4 * float64(pipelines),
			PeakBytes: map[string]int64{}},
		Considered: []events.Candidate{
			{Policy: "repipeline", Shape: fmt.Sprintf("%dx%d", pipelines, stages), StepSeconds: 0.108, TransitionSeconds: 0.21, Score: 74.2},
			{Policy: "repipeline", Shape: fmt.Sprint(len(c.living)), StepSeconds: 0.171, TransitionSeconds: 0.4, Score: 51.9, Rejected: "lower effective throughput"},
			{Policy: "reroute", Shape: fmt.Sprintf("%dx%d", pipelines, stages), StepSeconds: 0.162, Score: 55.1, Rejected: "lower effective throughput: n1 takes the micro-batches of n4"},
		},
	}
	if plan.Generation > 1 {
		plan.Parent = events.Digest(nil)
	}
	for p := range pipelines {
		pipeline := events.Pipeline{MicroBatches: 4}
		members := c.living[p*len(c.living)/pipelines : (p+1)*len(c.living)/pipelines]
		for s, node := range members {
			pipeline.Stages = append(pipeline.Stages,
				events.Stage{Node: node, Layers: events.Range{First: s * c.layers / len(members), End: (s + 1) * c.layers / len(members)}})
			plan.Predicted.PeakBytes[node] = int64(pipeline.Stages[s].Layers.End-pipeline.Stages[s].Layers.First) * 1100 << 20
		}
		plan.Pipelines = append(plan.Pipelines, pipeline)
	}
	return plan
}

// change negotiates a plan for those who live; at is called before each phase, by its name.
func (c *cluster) change(why []events.Change, stages int, at func(phase string)) {
	c.t.Helper()
	negotiation, plan := fmt.Sprintf("g%d", c.generation+1), c.plan(stages)
	for i := range plan.Nodes[:min(3, len(plan.Nodes))] {
		if plan.Generation > 1 {
			plan.Migration.Transfers = append(plan.Migration.Transfers, events.Transfer{Unit: i, To: plan.Nodes[i].Node, Bytes: 640 << 10,
				Sources: []events.Source{{Node: plan.Nodes[len(plan.Nodes)-1].Node, Shards: events.Range{End: 10}}}})
		}
	}
	plan.Migration.ShardBytes = 64 << 10
	c.say(events.NegotiationOpened, "/negotiator", negotiation, &events.Opening{
		Negotiation: negotiation, Generation: plan.Generation, Changes: why, Members: plan.Nodes})
	at("consent")
	for _, node := range c.living {
		c.say(events.Consented, "/node/"+node, node, &events.Consent{Negotiation: negotiation, Node: node, Incarnation: incarnation, Accepted: true})
	}
	proposal := events.Proposal{Negotiation: negotiation, Plan: plan}
	c.say(events.PlanProposed, "/planner", negotiation, &proposal)
	c.say(events.RestorationAsked, "/negotiator", negotiation,
		&events.RestorationRequest{Negotiation: negotiation, Proposal: proposal, Units: make([]int64, plan.UnitCount())})
	c.say(events.RestorationPlanned, "/restorer", negotiation,
		&events.Restoration{Negotiation: negotiation, Plan: plan, BytesMoved: 3 * 640 << 10, NaiveBytes: 5 << 20})
	c.say(events.Scheduled, "/negotiator", negotiation, &events.Schedule{Negotiation: negotiation, StopStep: uint64(c.step), Plan: plan})
	at("transfer")
	for i, transfer := range plan.Migration.Transfers {
		c.say(events.ShardReceived, "/node/"+transfer.To, transfer.To, &events.Receipt{
			Negotiation: negotiation, Node: transfer.To, Seconds: 0.06 + 0.03*float64(i),
			Units:   []events.ReceivedUnit{{Digest: events.Digest(nil), Bytes: transfer.Bytes}},
			Sources: []events.Received{{From: transfer.Sources[0].Node, Bytes: transfer.Bytes, BytesPerSecond: 11e6}},
		})
		at("receipt")
	}
	c.say(events.Committed, "/negotiator", negotiation,
		&events.Commitment{Negotiation: negotiation, Generation: plan.Generation, PlanDigest: events.Digest(nil)})
	c.say(events.PlanCommitted, "/negotiator", fmt.Sprint(plan.Generation), &plan)
	c.mutex.Lock()
	c.generation = plan.Generation
	stall := 0.0
	if c.pace == 0 {
		stall = time.Since(c.stopped).Seconds()
	}
	c.mutex.Unlock()
	for _, node := range c.living {
		c.say(events.PlanActivated, "/node/"+node, node, &events.Activation{Node: node, Generation: plan.Generation,
			Step: uint64(c.step), StallSeconds: stall, StallSteps: stall / 0.108, StepSeconds: 0.108})
	}
}

// lose has a node fail: it is silent, and the monitor says so.
func (c *cluster) lose(node string) []events.Change {
	c.t.Helper()
	c.mutex.Lock()
	c.living = slices.DeleteFunc(c.living, func(one string) bool { return one == node })
	c.pace, c.stopped = 0, time.Now()
	c.mutex.Unlock()
	lost := c.say(events.NodeLost, "/monitor", node, &events.NodeState{
		Node: node, Incarnation: incarnation, Reason: "a peer's connection was reset, and the hub has nobody to ask", SilentSeconds: 0.03})
	return []events.Change{{Kind: events.ChangeFailure, Node: node, Cause: lost.ID}}
}

func (c *cluster) resume() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.pace = 9
}

// describe tells of what each node has, as a planner is told.
func (c *cluster) describe() {
	request := events.PlanRequest{Negotiation: "g1", Cluster: "opticks", Generation: 1, Changes: []events.Change{}, Links: []events.Link{},
		Job: events.Job{Digest: events.Digest(nil), GlobalBatch: 8, MicroBatch: 1, Layers: make([]events.LayerProfile, c.layers)}}
	for i := range request.Job.Layers {
		request.Job.Layers[i] = events.LayerProfile{ParameterBytes: 1 << 20}
	}
	for i, member := range c.members() {
		request.Nodes = append(request.Nodes, events.Device{Member: member, MemoryBytes: int64(16+8*(i%2)) << 30, SpeedFactor: 1 - 0.05*float64(i%3)})
	}
	c.say(events.PlanRequested, "/negotiator", "g1", &request)
}

// measure tells of links: between all of few nodes, and each node's to four others of many.
func (c *cluster) measure() {
	for i, from := range c.living {
		for k := 1; k <= min(4, len(c.living)-1); k++ {
			to := c.living[(i+k)%len(c.living)]
			rate := 118e6 / float64(1+(i*k)%3)
			if i == 1 && k == 2 {
				rate = 4e6
			}
			c.say(events.LinkMeasured, "/monitor", fmt.Sprintf("%d-%d", i, k), // long names make no id together
				&events.Measurement{From: from, To: to, RoundTripSeconds: 0.0004 * float64(k), BandwidthBytesPerSecond: rate})
		}
	}
}

// beat sends heartbeats until the test ends.
func (c *cluster) beat(ctx context.Context) {
	for number := uint64(1); ; number++ {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return
		}
		c.mutex.Lock()
		c.step += c.pace / 2
		for i, node := range c.living {
			pulse := events.Pulse{Node: node, Incarnation: incarnation, Number: number, Generation: c.generation, Step: uint64(c.step),
				StepSeconds: 0.108 + 0.002*float64(i%5), Loss: 1.2 + 2*math.Exp(-c.step/900) + 0.01*math.Sin(c.step)}
			data, err := json.Marshal(pulse)
			if err == nil {
				err = c.bus.Conn().Publish(events.PulseSubject("opticks", node), data)
			}
			if err != nil && ctx.Err() == nil {
				c.t.Error(err)
			}
		}
		c.mutex.Unlock()
	}
}

// answerProbes has every node that lives show so.
func (c *cluster) answerProbes() {
	_, err := c.bus.Conn().Subscribe(events.ProbeSubject("opticks", "*"), func(message *nats.Msg) {
		node := message.Subject[len(events.ProbeSubject("opticks", "")):]
		if data, err := json.Marshal(events.ProbeAnswer{Node: node, Incarnation: incarnation}); err == nil {
			_ = message.Respond(data)
		}
	})
	if err := errors.Join(err, c.bus.Conn().Flush()); err != nil {
		c.t.Fatal(err)
	}
}
