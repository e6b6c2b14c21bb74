package machine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// rung is a machine whose plan in force has n1 to n4 reduce 16 MB around a ring, in steps of a second. A message takes 0.04 s over a
// usual link, of 100 MB/s, of which six follow each other. n5 waits for two links of 50 MB/s.
func rung(t *testing.T) *reduces {
	t.Helper()
	m := New(Settings{Cluster: "opticks", AnswerTimeout: 5 * time.Second})
	m.state.Job = &events.Job{Kind: events.DataParallel, GlobalBatch: 8, MicroBatch: 1, Layers: []events.LayerProfile{{GradientBytes: 16e6}}}
	plan := &events.Plan{Cluster: "opticks", Generation: 4, Kind: events.DataParallel}
	for _, node := range []string{"n1", "n2", "n3", "n4", "n5"} {
		m.state.Members[node] = &member{Member: events.Member{Node: node, Incarnation: "a"}}
		plan.Nodes = append(plan.Nodes, m.state.Members[node].Member)
		if node != "n5" {
			stages := []events.Stage{{Node: node, Layers: events.Range{End: 1}}}
			plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 2, Stages: stages})
		}
	}
	plan.Sync.Rounds = []events.Round{{Groups: []events.Group{{Layers: events.Range{End: 1}, Nodes: []string{"n1", "n2", "n3", "n4"}}}}}
	plan.Idle = []events.Idle{{Node: "n5", StepSeconds: 3, NeedsBytesPerSecond: 50e6}}
	m.state.Plan = plan
	m.state.Measured.Take("n1", 1, 0)
	r := &reduces{t, m, plan, time.Unix(1_800_000_000, 0)}
	for _, from := range plan.Nodes {
		for _, to := range plan.Nodes {
			rate := 100e6
			if from.Node == "n5" || to.Node == "n5" {
				rate = 5e6
			}
			if from != to && len(r.measure(from.Node, to.Node, rate, 0.1)) > 0 {
				t.Fatalf("the link from %s to %s is negotiated", from.Node, to.Node)
			}
		}
	}
	m.state.Message = m.message(plan)
	return r
}

type reduces struct {
	t       *testing.T
	machine *Machine
	plan    *events.Plan
	now     time.Time
}

// measure has the machine hear of a link, and returns what it negotiates. The plan is committed as it was.
func (r *reduces) measure(from, to string, rate, off float64) []events.Change {
	r.t.Helper()
	return r.opened(hearing(r.machine, events.Event{ID: r.now.String(), Logged: r.now}, func() {
		r.machine.linkMeasured(events.Measurement{
			From: from, To: to, RoundTripSeconds: 0.001, BandwidthBytesPerSecond: rate, Uncertainty: off})
	}))
}

// hearing has a machine hear what a handler is called with, and returns what it says.
func hearing(m *Machine, cause events.Event, hear func()) []events.Event {
	m.cause, m.said, m.agenda = cause, nil, agenda{}
	hear()
	m.advance()
	return m.said
}

func (r *reduces) opened(said []events.Event) (changes []events.Change) {
	r.t.Helper()
	for _, event := range said {
		if event.Kind == events.NegotiationOpened {
			changes = append(changes, must[events.Opening](r.t, event).Changes...)
		}
	}
	r.machine.state.Negotiation, r.machine.state.Pending = nil, nil
	return changes
}

func (r *reduces) expect(about, from, to string, changes []events.Change) {
	r.t.Helper()
	is := len(changes) == 1 && changes[0].Kind == events.ChangeMeasured && changes[0].Node == from && changes[0].Peer == to
	if from == "" && len(changes) > 0 || from != "" && !is {
		r.t.Errorf("%s: negotiated is %+v, expected that of the link from %q to %q", about, changes, from, to)
	}
}

func TestALinkThatIsKnownToSlowAllWhoTrainIsNegotiated(t *testing.T) {
	for _, test := range []struct {
		about string
		with  func(*reduces)
		rate  float64
		off   float64
		to    string
		is    bool
	}{
		{"a link of the ring", nil, 40e6, 0.1, "n2", true},
		{"one that was measured once", nil, 40e6, 0, "n2", false},
		{"one that may be nearly as good", nil, 75e6, 0.3, "n2", false},
		{"one that is a little slower", nil, 85e6, 0.1, "n2", false},
		{"one that the ring does not use", nil, 40e6, 0.1, "n3", false},
		{"as slow as was known when the plan was made", func(r *reduces) { r.machine.state.Message = 0.1 }, 40e6, 0.1, "n2", false},
		{"nothing was known then", func(r *reduces) { r.machine.state.Message = 0 }, 40e6, 0.1, "n2", true},
		{"nothing was known, and all are as slow", func(r *reduces) {
			r.machine.state.Message = 0
			for key, link := range r.machine.state.Links {
				link.BandwidthBytesPerSecond = 40e6
				r.machine.state.Links[key] = link
			}
		}, 40e6, 0.1, "n2", false},
		{"another link of an end was measured once", func(r *reduces) { r.measure("n2", "n4", 40e6, 0) }, 40e6, 0.1, "n2", false},
		{"that one reads well", func(r *reduces) { r.measure("n2", "n4", 100e6, 0) }, 40e6, 0.1, "n2", true},
		{"of steps a hundred times as long", func(r *reduces) { r.machine.state.Measured.Take("n1", 100, 0) }, 40e6, 0.1, "n2", false},
		{"nobody measured a step", func(r *reduces) { clear(r.machine.state.Measured) }, 40e6, 0.1, "n2", false},
		{"the cluster holds", func(r *reduces) { r.machine.state.Hold.Active = true }, 40e6, 0.1, "n2", false},
		{"a job of another kind", func(r *reduces) { r.plan.Kind = "" }, 40e6, 0.1, "n2", false},
	} {
		r := rung(t)
		if test.with != nil {
			test.with(r)
		}
		from := ""
		if test.is {
			from = "n1"
		}
		r.expect(test.about, from, test.to, r.measure("n1", test.to, test.rate, test.off))
	}
}

func TestAPlanIsNotMadeAgainForALinkThatItKnowsToBeSlow(t *testing.T) {
	r := rung(t)
	r.expect("a slow link", "n1", "n2", r.measure("n1", "n2", 40e6, 0.1))
	r.machine.state.Message = r.machine.message(r.plan) // nothing better was found
	for range 10 {
		r.now = r.now.Add(time.Hour)
		r.expect("as slow", "", "", r.measure("n1", "n2", 38e6, 0.1))
	}
	r.expect("slower still", "n1", "n2", r.measure("n1", "n2", 10e6, 0.1))
}

func TestANodeThatWaitsIsTakenInOnceTwoOfItsLinksAreKnownToSufficeBothWays(t *testing.T) {
	r := rung(t)
	r.expect("one way", "", "", r.measure("n5", "n1", 60e6, 0.1))
	r.expect("one link", "", "", r.measure("n1", "n5", 60e6, 0.1))
	r.expect("its own word of another", "", "", r.measure("n5", "n3", 60e6, 0.1))
	r.expect("measured once", "", "", r.measure("n3", "n5", 60e6, 0))
	r.expect("less at worst", "", "", r.measure("n3", "n5", 52e6, 0.1))
	r.expect("two links", "n5", "n3", r.measure("n3", "n5", 60e6, 0.1))
	r.plan.Idle[0].NeedsBytesPerSecond, r.plan.Idle[0].NeedsRoundTripSeconds = 0, 0.0005
	r.now = r.now.Add(time.Hour)
	r.expect("too long a delay", "", "", r.measure("n3", "n5", 60e6, 0.1))
	r.plan.Idle[0].NeedsRoundTripSeconds = 0.002
	r.expect("short delays", "n5", "n4", r.measure("n3", "n5", 60e6, 0.1))
}

// n5 says in turn that its links suffice and that they do not, once a second.
func TestALiarOpensFewerAndFewerNegotiationsAndNothingIsPutOffForGood(t *testing.T) {
	r := rung(t)
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		r.measure(node, "n5", 60e6, 0.1)
	}
	r.measure("n5", "n1", 60e6, 0.1)
	opened := 0
	for second := range 4 * 3600 {
		r.now = r.now.Add(time.Second)
		opened += len(r.measure("n5", "n2", []float64{5e6, 60e6}[second%2], 0.1))
	}
	if opened < 10 || opened > 10+4*12 {
		t.Errorf("%d negotiations in four hours: expected about one in five minutes", opened)
	}
	r.expect("too soon", "", "", r.measure("n5", "n2", 60e6, 0.1))
	rang := 0
	r.machine.state.Heard = r.now
	for range 600 {
		for _, event := range r.machine.Tick(r.now) {
			said := hearing(r.machine, events.Event{ID: fmt.Sprint(r.now), Logged: r.now}, func() {
				r.machine.overdue(must[events.Overdue](t, event))
			})
			rang += len(r.opened(said))
		}
		r.now = r.now.Add(time.Second)
	}
	if rang != 1 {
		t.Errorf("%d negotiations in the ten minutes after the last word, expected one", rang)
	}
}

func TestWhoeverObjectsToWhatLinksBringAboutIsNotGivenUp(t *testing.T) {
	r := rung(t)
	hearing(r.machine, events.Event{ID: "a", Logged: r.now}, func() {
		r.machine.linkMeasured(events.Measurement{
			From: "n1", To: "n2", RoundTripSeconds: 0.001, BandwidthBytesPerSecond: 40e6, Uncertainty: 0.1})
	})
	under := r.machine.state.Negotiation
	said := hearing(r.machine, events.Event{ID: "b", Logged: r.now}, func() {
		r.machine.consented(events.Consent{Negotiation: under.ID, Node: "n3", Incarnation: "a", Reason: "not now"})
	})
	for _, event := range said {
		if event.Kind == events.MembershipRefused {
			t.Errorf("said %s", event.Data)
		}
	}
	if r.machine.state.Members["n3"] == nil {
		t.Error("n3 is given up")
	}
}

func TestAPlanWhoseRingIsOfLayersThatTheJobHasNotEndsNothing(t *testing.T) {
	r := rung(t)
	for _, layers := range []events.Range{{First: 0, End: 99}, {First: 2, End: 1}, {First: -1, End: 1}} {
		r.plan.Sync.Rounds[0].Groups[0].Layers = layers
		if message := r.machine.message(r.plan); message != 0 {
			t.Errorf("of layers %v a message takes %v s", layers, message)
		}
	}
}

// A measurement among 500 who train and as many who wait concerns two of them.
func TestAMeasurementIsHeardWithoutALookAtEveryNodeThatWaits(t *testing.T) {
	const nodes = 500
	r := rung(t)
	for i := range nodes {
		trains, waits := fmt.Sprintf("t%03d", i), fmt.Sprintf("w%03d", i)
		r.machine.state.Members[trains], r.machine.state.Members[waits] = &member{}, &member{}
		r.plan.Pipelines = append(r.plan.Pipelines, events.Pipeline{Stages: []events.Stage{{Node: trains, Layers: events.Range{End: 1}}}})
		r.plan.Idle = append(r.plan.Idle, events.Idle{Node: waits, StepSeconds: 3, NeedsBytesPerSecond: 50e6})
	}
	for what, hear := range map[string]func(){
		"of a link": func() { r.measure("t000", "w000", 100e6, 0.1) },
		"of a step": func() {
			r.opened(hearing(r.machine, events.Event{Logged: r.now}, func() {
				r.machine.paced(events.Pace{Node: "n1", Generation: r.plan.Generation, StepSeconds: 1})
			}))
		},
	} {
		if made := testing.AllocsPerRun(10, hear); made > 100 {
			t.Errorf("a measurement %s has %.0f objects made, expected no more than nodes at its ends need", what, made)
		}
	}
}

// The twin looks at every node that waits whatever it hears.
func TestWhoeverIsNotLookedAtWouldNotHaveChangedAnything(t *testing.T) {
	opened := 0
	for seed := range uint64(10) {
		dice := rand.New(rand.NewPCG(seed, 0))
		r, twin := rung(t), rung(t)
		for _, r := range []*reduces{r, twin} {
			r.plan.Idle = append(r.plan.Idle, events.Idle{Node: "n4", NeedsBytesPerSecond: 70e6})
			r.plan.Pipelines, r.machine.looked = r.plan.Pipelines[:3], false
		}
		for range 300 {
			event := draw(dice, r.now)
			twin.machine.looked = false
			said, want := r.handle(event), twin.handle(event)
			if !reflect.DeepEqual(said, want) || !reflect.DeepEqual(r.machine.state, twin.machine.state) {
				t.Fatalf("seed %d, after %s %s: negotiated is %+v, expected %+v", seed, event.Kind, event.Data, said, want)
			}
			opened += len(said)
			if dice.IntN(5) > 0 { // some events come while it negotiates
				for _, r := range []*reduces{r, twin} {
					r.opened(nil)
					r.machine.state.Paused = false
				}
			}
			r.now = r.now.Add(time.Duration(dice.IntN(60)) * time.Second)
		}
	}
	if opened < 100 {
		t.Errorf("%d negotiations were compared", opened)
	}
}

// draw is an event that may change who should train.
func draw(dice *rand.Rand, now time.Time) events.Event {
	speaker := events.Speaker{Source: "/test", Cluster: "opticks"}
	node := func() string { return fmt.Sprintf("n%d", 1+dice.IntN(5)) }
	from, to := node(), node()
	for from == to {
		to = node()
	}
	kind, payload := events.LinkMeasured, events.Payload(&events.Measurement{From: from, To: to, RoundTripSeconds: 0.001,
		BandwidthBytesPerSecond: 30e6 + 60e6*dice.Float64(), Uncertainty: 0.1 * float64(min(1, dice.IntN(10)))})
	switch dice.IntN(40) {
	case 0:
		kind, payload = events.PlanMeasured, &events.Pace{Node: "n1", Generation: 4, StepSeconds: 1, Steps: 1}
	case 1:
		kind, payload = events.LinkLost, &events.LinkState{From: from, To: to}
	case 2, 3, 4:
		kind, payload = events.LinkRestored, &events.LinkState{From: from, To: to}
	case 5:
		kind, payload = events.NegotiationOverdue, &events.Overdue{Negotiation: "none", Phase: shifting, Node: node()}
	}
	event := speaker.First(now, fmt.Sprint(now, dice.Uint64()), kind, from, payload)
	event.Logged = now
	return event
}

// handle returns what is negotiated for an event. It is not committed.
func (r *reduces) handle(event events.Event) (changes []events.Change) {
	r.t.Helper()
	said, err := r.machine.Handle(event)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, event := range said {
		if event.Kind == events.NegotiationOpened {
			changes = append(changes, must[events.Opening](r.t, event).Changes...)
		}
	}
	return changes
}
