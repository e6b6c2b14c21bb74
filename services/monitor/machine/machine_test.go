package machine_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine"
)

const cluster = "test"

// world is a machine and nodes around it that answer its probes. Time is what the world says.
type world struct {
	generation uint64 // that nodes say they work under
	t          *testing.T
	machine    *machine.Machine
	now        time.Time
	nodes      map[string]*member
	said       []events.Event
	asks       []machine.Ask
	broken     map[events.Pair]bool // links over which no probe comes
	band       float64              // bandwidth that probes measure
	silent     bool                 // nobody hears probes: the hub is away
	deaf       bool                 // nobody hears probes, but the hub hears heartbeats
	mute       string               // sends no heartbeats, but answers
}

type member struct {
	incarnation string
	number      uint64
	dead        bool // its process is gone
	frozen      bool // it sends and answers nothing
}

func newWorld(t *testing.T, names ...string) *world {
	w := &world{
		t: t, machine: machine.New(machine.Defaults(cluster)), now: time.Unix(1000, 0),
		nodes: map[string]*member{}, broken: map[events.Pair]bool{}, band: 1e8,
	}
	for _, name := range names {
		w.join(name, "a")
	}
	w.commit("g1", nil, names...)
	w.pass(2 * time.Second)
	w.said = nil
	return w
}

var job = events.Job{
	Digest: events.Digest(nil), Layers: []events.LayerProfile{{ParameterBytes: 1}}, GlobalBatch: 1, MicroBatch: 1,
}

func (w *world) join(name, incarnation string) {
	w.nodes[name] = &member{incarnation: incarnation}
	w.hear("/node/"+name, events.JoinRequested, name, &events.Join{
		Node: name, Incarnation: incarnation, Address: name + ":1", MemoryBytes: 1, Job: job,
	})
}

func (w *world) hear(source string, kind events.Kind, subject string, payload events.Payload) {
	w.t.Helper()
	speaker := events.Speaker{Source: source, Cluster: cluster}
	event := speaker.First(w.now, fmt.Sprint(w.now.UnixNano()), kind, subject, payload)
	event.Logged = w.now
	said, err := w.machine.Handle(event)
	if err != nil {
		w.t.Fatal(err)
	}
	w.note(said)
}

func (w *world) commit(negotiation string, changes []events.Change, names ...string) {
	opening := &events.Opening{Negotiation: negotiation, Generation: 2, Changes: append(changes, events.Change{Kind: events.ChangeJoin, Node: "x"})}
	for _, name := range names {
		opening.Members = append(opening.Members, events.Member{Node: name, Incarnation: w.nodes[name].incarnation, Address: name + ":1"})
	}
	w.hear("/negotiator", events.NegotiationOpened, negotiation, opening)
	w.hear("/negotiator", events.Committed, negotiation, &events.Commitment{Negotiation: negotiation, Generation: 2, PlanDigest: events.Digest(nil)})
}

// note keeps what was said, lets the machine hear its own words, and answers its probes.
func (w *world) note(said []events.Event) {
	for _, event := range said {
		row, _ := event.Kind.Row()
		if payload := row.New(); event.Source != "/monitor" || !events.Token(event.Subject) || payload == nil {
			w.t.Errorf("said %+v", event)
		}
		w.said = append(w.said, event)
		w.checkLoss(event)
		if slices.Contains(w.machine.Hears(), event.Kind) {
			if again, err := w.machine.Handle(event); err != nil || len(again) > 0 {
				w.t.Errorf("its own %s made it say %v, %v", event.Kind, again, err)
			}
		}
	}
	for _, ask := range w.machine.Asks() {
		w.asks = append(w.asks, ask)
		answer, gone := w.answer(ask)
		w.note(w.machine.Probed(ask, answer, gone, w.now))
	}
}

// checkLoss fails when a living node is lost on evidence, which only the dead give.
func (w *world) checkLoss(event events.Event) {
	if event.Kind != events.NodeLost {
		return
	}
	lost, err := events.Open[events.NodeState](event)
	node := w.nodes[event.Subject]
	if err != nil || strings.Contains(lost.Reason, "reset") && !node.dead && node.incarnation == lost.Incarnation {
		w.t.Errorf("%s lives, lost: %+v, %v", event.Subject, lost, err)
	}
}

func (w *world) answer(ask machine.Ask) (answer *events.ProbeAnswer, gone bool) {
	node := w.nodes[ask.Node]
	switch {
	case w.silent || w.deaf || node != nil && node.frozen:
		return nil, false
	case node == nil || node.dead:
		return nil, true
	}
	answer = &events.ProbeAnswer{Node: ask.Node, Incarnation: node.incarnation}
	target := w.nodes[ask.Target]
	if ask.Target == "" {
		return answer, false
	}
	if target == nil || target.dead || w.broken[events.PairOf(ask.Node, ask.Target)] {
		answer.Error = "connection refused"
		return answer, false
	}
	answer.Measured = &events.Measurement{From: ask.Node, To: ask.Target, RoundTripSeconds: 0.01, BandwidthBytesPerSecond: w.band}
	return answer, false
}

func (w *world) pulse(name string, suspicions ...events.Suspicion) {
	node := w.nodes[name]
	if node.dead || node.frozen || w.silent || w.mute == name {
		return
	}
	node.number++
	w.note(w.machine.Pulse(events.Pulse{
		Node: name, Incarnation: node.incarnation, Number: node.number, Generation: w.generation, Suspicions: suspicions,
	}, w.now))
}

// leave has a node say that it ends.
func (w *world) leave(name string) {
	node := w.nodes[name]
	node.number++
	w.note(w.machine.Pulse(events.Pulse{Node: name, Incarnation: node.incarnation, Number: node.number, Left: true}, w.now))
}

// restart has another machine take over with the memory of the one before.
func (w *world) restart() {
	w.t.Helper()
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	w.machine = machine.New(machine.Defaults(cluster))
	if err := w.machine.Restore(snapshot); err != nil {
		w.t.Fatal(err)
	}
}

// pass lets time pass: a tick every 100 ms, a heartbeat of each node every 500 ms.
func (w *world) pass(duration time.Duration) {
	for tick := range int(duration / (100 * time.Millisecond)) {
		w.now = w.now.Add(100 * time.Millisecond)
		if tick%5 == 0 {
			for _, name := range w.names() {
				w.pulse(name)
			}
		}
		w.note(w.machine.Tick(w.now))
	}
}

func (w *world) names() (names []string) {
	for name := range w.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// expect compares what was said since the last time, without measurements.
func (w *world) expect(facts ...string) {
	w.t.Helper()
	got := []string{}
	for _, event := range w.said {
		if event.Kind != events.LinkMeasured {
			got = append(got, fmt.Sprintf("%s %s", event.Kind, event.Subject))
		}
	}
	w.said = nil
	if !slices.Equal(got, facts) {
		w.t.Errorf("expected %q, got %q", facts, got)
	}
}

func refused(node string) events.Suspicion {
	return events.Suspicion{Node: node, Refused: true, Reason: "connection reset"}
}

func TestAKilledNodeIsLostAtOnceWhenAPeerReportsTheReset(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].dead = true
	before := w.now
	w.pulse("n1", refused("n3"))
	if len(w.said) != 1 || w.now != before {
		t.Fatalf("expected the loss at once, got %v", w.said)
	}
	state, err := events.Open[events.NodeState](w.said[0])
	if err != nil || state.Incarnation != "a" || !strings.Contains(state.Reason, "n1") {
		t.Errorf("%+v, %v", state, err)
	}
	w.expect("node.lost n3")
	w.pulse("n2", refused("n3"))
	w.pass(20 * time.Second)
	w.expect() // once an incarnation
}

func TestASilentNodeIsSuspectedAndLostAndOneThatComesBackIsCleared(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].frozen = true
	w.pass(3 * time.Second)
	w.nodes["n3"].frozen = false
	w.pass(5 * time.Second)
	w.expect("node.suspected n3", "node.cleared n3")
	w.nodes["n2"].frozen = true
	w.pass(6 * time.Second)
	w.expect("node.suspected n2", "node.lost n2")
}

// The host's clock is set back as a node dies (NTP, a resumed virtual machine), and forth again.
func TestASilentDeathIsFoundAsFastWhenTheClockIsSetBack(t *testing.T) {
	for _, step := range []time.Duration{0, -time.Minute, -time.Hour} {
		w := newWorld(t, "n1", "n2", "n3", "n4")
		w.pass(10 * time.Second)
		w.expect()
		w.nodes["n4"].dead = true
		w.now = w.now.Add(step)
		w.pass(5 * time.Second)
		w.expect("node.suspected n4", "node.lost n4")
		w.now = w.now.Add(-step)
		w.pass(20 * time.Second)
		w.expect()
	}
}

func TestProbesAndLinkRoundsGoOnWhenTheClockIsSetBack(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.join("n4", "joins")
	w.asks = nil
	w.now = w.now.Add(-time.Hour)
	w.pass(10 * time.Second)
	signs, links := 0, 0
	for _, ask := range w.asks {
		if ask.Target == "" {
			signs++
		} else {
			links++
		}
	}
	if signs < 9 || links < 9 {
		t.Errorf("within 10 s %d signs of life and %d links were asked for: expected one of each a second", signs, links)
	}
}

func TestASuspicionThatClearsLeavesNothingBehind(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].frozen = true
	w.pass(3 * time.Second)
	w.nodes["n3"].frozen = false
	w.pass(time.Second)
	suspected, cleared := w.said[0], w.said[len(w.said)-1]
	w.expect("node.suspected n3", "node.cleared n3")
	w.asks = nil
	w.pass(5 * time.Second)
	for _, ask := range w.asks {
		if ask.Target == "" {
			t.Errorf("%s is well, and was asked for a sign of life", ask.Node)
		}
	}
	w.restart()
	w.pass(5 * time.Second)
	w.expect() // it is not cleared again
	w.nodes["n3"].frozen = true
	w.pass(3 * time.Second)
	if again := w.said[0]; again.Kind != events.NodeSuspected || again.ID == suspected.ID || again.ID == cleared.ID {
		t.Errorf("a second suspicion: said %+v after %+v", again, suspected)
	}
}

func TestALossSaysWhatItWasConcludedFrom(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4", "n5")
	lost := func(name string) string {
		t.Helper()
		at := slices.IndexFunc(w.said, func(event events.Event) bool {
			return event.Kind == events.NodeLost && event.Subject == name
		})
		if at < 0 {
			t.Fatalf("%s is not lost", name)
		}
		state, err := events.Open[events.NodeState](w.said[at])
		if err != nil {
			t.Fatal(err)
		}
		return state.Reason
	}
	w.nodes["n3"].frozen = true
	w.pass(10 * time.Second)
	w.deaf = true
	w.pulse("n1", refused("n4"))
	w.pulse("n2", refused("n4"))
	w.deaf = false
	w.nodes["n4"].dead = true
	w.pulse("n2", refused("n4"))
	w.join("n6", "joins")
	w.nodes["n6"].dead = true
	w.pass(3 * time.Second)
	for name, reason := range map[string]string{
		"n3": "no heartbeat",
		"n4": "n1, n2 reported a reset connection and nobody answers at the hub",
		"n6": "nobody answers at the hub",
	} {
		if got := lost(name); got != reason {
			t.Errorf("%s: %q: expected %q", name, got, reason)
		}
	}
}

func TestANodeThatAnswersProbesButSendsNoHeartbeatsStaysSuspected(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.mute = "n3"
	w.pass(20 * time.Second)
	w.expect("node.suspected n3")
	w.mute = ""
	w.pass(time.Second)
	w.expect("node.cleared n3")
}

func TestANodeThatOnlyAPeerComplainsAboutIsNotLost(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	for range 20 {
		w.pulse("n1", refused("n3"))
		w.pass(time.Second)
	}
	w.expect()
}

func TestAnotherIncarnationDoesNotSpeakForTheOneThatJoined(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"] = &member{incarnation: "b"} // restarted, has not joined yet
	w.pulse("n1", refused("n3"))
	w.expect("node.lost n3")
	w.pass(10 * time.Second)
	w.join("n3", "b")
	w.pass(10 * time.Second)
	w.expect()
	w.nodes["n3"].frozen = true
	w.pass(10 * time.Second)
	w.expect("node.suspected n3", "node.lost n3")
}

func TestAnotherIncarnationReportsNobody(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].dead = true
	w.nodes["n1"] = &member{incarnation: "b"} // restarted, has not joined yet
	w.pulse("n1", refused("n3"))
	w.expect()
	w.pulse("n2", refused("n3"))
	w.expect("node.lost n3")
}

func TestAJoiningNodeThatVanishesIsMissedWithoutAPeerThatReportsIt(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.join("n3", "third")
	w.pass(2 * time.Second)
	w.expect()
	w.nodes["n3"].dead = true
	w.pass(900 * time.Millisecond)
	w.expect() // the hub's word counts the second time
	w.pass(1600 * time.Millisecond)
	w.expect("node.lost n3")
}

func TestAJoiningNodeThatAnswersInBetweenHasNotVanished(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.join("n3", "third")
	w.pass(2 * time.Second)
	w.mute = "n3" // an answer is the only sign of life
	for range 2 {
		w.nodes["n3"].dead = true
		w.pass(time.Second)
		w.nodes["n3"].dead = false
		w.pass(time.Second)
	}
	w.mute = ""
	w.pass(5 * time.Second)
	for _, event := range w.said {
		if event.Kind == events.NodeLost {
			t.Errorf("lost %s", event.Subject)
		}
	}
}

func TestAJoiningNodeIsWatchedWhateverElseItIsRefused(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.join("n3", "third")
	w.hear("/negotiator", events.MembershipRefused, "n3", &events.Refusal{Node: "n3", Refused: events.ChangeConnect, Reason: "a link of n3: expected two active nodes"})
	w.nodes["n3"].dead = true
	w.pass(5 * time.Second)
	w.expect("node.lost n3")
}

func TestANodeThatLeftOrWasRefusedIsIgnored(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.commit("g2", []events.Change{{Kind: events.ChangeLeave, Node: "n3"}}, "n1", "n2", "n3")
	w.leave("n3")
	w.nodes["n3"].dead = true
	w.join("n4", "a")
	w.hear("/negotiator", events.MembershipRefused, "n4", &events.Refusal{Node: "n4", Refused: events.ChangeJoin, Incarnation: w.nodes["n4"].incarnation, Reason: "another job"})
	w.hear("/negotiator", events.MembershipRefused, "n1", &events.Refusal{Node: "n1", Refused: events.ChangeConnect, Reason: "no such link"}) // stays
	w.nodes["n4"].dead, w.nodes["n1"].dead = true, true
	w.pass(20 * time.Second)
	w.expect("node.suspected n1", "node.lost n1")
}

// Found by simulation seed 1749.
func TestALeaverIsWatchedUntilThePlanWithoutItTakesOver(t *testing.T) {
	leaves := []events.Change{{Kind: events.ChangeLeave, Node: "n3"}}
	w := newWorld(t, "n1", "n2", "n3")
	w.commit("g2", leaves, "n1", "n2", "n3")
	w.nodes["n3"].dead = true
	w.pulse("n2", refused("n3"))
	w.expect("node.lost n3")

	w = newWorld(t, "n1", "n2", "n3")
	w.commit("g2", leaves, "n1", "n2", "n3")
	w.join("n3", "another-process")
	w.expect("node.lost n3")

	w = newWorld(t, "n1", "n2", "n3")
	w.commit("g2", leaves, "n1", "n2", "n3")
	w.generation = 2
	w.pulse("n1")
	w.nodes["n3"].dead = true
	w.pass(20 * time.Second)
	w.expect()
}

// A node without a place takes up a plan at once, whatever step the others are at.
func TestALeaverIsWatchedUntilAllHaveTakenUpThePlanWithoutIt(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.commit("g2", []events.Change{{Kind: events.ChangeLeave, Node: "n3"}}, "n1", "n2", "n3")
	w.generation = 2
	w.pulse("n1")
	w.generation = 1
	w.nodes["n3"].dead = true
	w.pulse("n2", refused("n3"))
	w.expect("node.lost n3")
}

func TestALeaverThatDiesBeforeTheCommitIsLost(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.hear("/negotiator", events.NegotiationOpened, "g2", &events.Opening{
		Negotiation: "g2", Generation: 2, Changes: []events.Change{{Kind: events.ChangeLeave, Node: "n3"}},
	})
	w.nodes["n3"].dead = true
	w.pulse("n2", refused("n3"))
	w.expect("node.lost n3")
}

func TestWhenTheHubIsAwayNobodyIsLost(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	w.silent = true
	w.pass(12 * time.Second)
	w.silent = false
	w.pass(20 * time.Second)
	for _, event := range w.said {
		if event.Kind == events.NodeLost {
			t.Errorf("lost %s", event.Subject)
		}
	}
}

func TestALinkThatAPeerReportsAndAProbeConfirmsIsLostAndComesBack(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.pulse("n1", refused("n2"))
	w.expect() // the probe comes through
	w.broken[events.PairOf("n2", "n1")] = true
	w.pass(20 * time.Second)
	w.expect() // nobody uses it
	w.pulse("n2", refused("n1"))
	w.pulse("n1", refused("n2"))
	w.expect("link.lost n1-n2")
	w.pass(5 * time.Second)
	w.expect()
	w.broken = map[events.Pair]bool{}
	w.pass(5 * time.Second)
	w.expect("link.restored n1-n2")
}

func TestALinkDisconnectedOnPurposeIsLeftAlone(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.commit("g2", []events.Change{{Kind: events.ChangeDisconnect, Node: "n2", Peer: "n1"}}, "n1", "n2", "n3")
	w.broken[events.PairOf("n1", "n2")] = true
	w.asks = nil
	w.pulse("n1", refused("n2"))
	w.pass(20 * time.Second)
	w.expect()
	for _, ask := range w.asks {
		if ask.Target != "" && events.PairOf(ask.Node, ask.Target) == events.PairOf("n1", "n2") {
			t.Fatalf("asked for %+v", ask)
		}
	}
	w.commit("g3", []events.Change{{Kind: events.ChangeConnect, Node: "n1", Peer: "n2"}}, "n1", "n2", "n3")
	w.pulse("n1", refused("n2"))
	w.expect("link.lost n1-n2")
}

func TestALinkDisconnectedOnPurposeStaysSoWhenItsNodeComesBack(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.commit("g2", []events.Change{{Kind: events.ChangeDisconnect, Node: "n2", Peer: "n1"}}, "n1", "n2", "n3")
	w.nodes["n2"].dead = true
	w.pass(10 * time.Second)
	w.expect("node.suspected n2", "node.lost n2")
	w.restart()
	w.join("n2", "b")
	w.commit("g3", nil, "n1", "n2", "n3")
	w.broken[events.PairOf("n1", "n2")] = true
	w.pulse("n1", refused("n2"))
	w.pass(5 * time.Second)
	w.expect()
}

// A link was lost, then disconnected on purpose; an end of it died while it was to be connected again.
func TestALinkThatIsConnectedAgainWhenAnEndOfItIsGoneIsNotProbed(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.broken[events.PairOf("n1", "n2")] = true
	w.pulse("n1", refused("n2"))
	w.pulse("n2", refused("n1"))
	w.pass(time.Second)
	w.expect("link.lost n1-n2")
	w.commit("g2", []events.Change{{Kind: events.ChangeDisconnect, Node: "n1", Peer: "n2"}}, "n1", "n2", "n3")
	w.nodes["n2"].dead = true
	w.pass(10 * time.Second)
	w.commit("g3", []events.Change{{Kind: events.ChangeConnect, Node: "n1", Peer: "n2"}}, "n1", "n3")
	w.pass(5 * time.Second)
	w.expect("node.suspected n2", "node.lost n2")
}

func TestWhatIsKnownOfNodesThatAreGoneIsBounded(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	var remembered []int
	for round := range 20 {
		var changes []events.Change
		for number := range 1000 {
			gone := fmt.Sprintf("gone%d-%d", round, number)
			changes = append(changes, events.Change{Kind: events.ChangeDisconnect, Node: "n1", Peer: gone})
		}
		w.commit("g", changes, "n1", "n2")
		remembered = append(remembered, w.remembered())
	}
	if early, late := slices.Max(remembered[:10]), slices.Max(remembered[10:]); float64(late) > 1.1*float64(early) {
		t.Errorf("%d bytes are remembered of 20,000 nodes that are gone, and %d of 10,000", late, early)
	}
}

// A peer reported n2 before n2 was restarted, and the probe that would have told was lost. The link to the process that
// took its place is new: that it does not work yet proves nothing.
func TestReportsOfANodeAreForgottenWithIt(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.deaf = true
	w.pulse("n1", refused("n2"))
	w.deaf = false
	w.join("n2", "b")
	w.commit("g2", nil, "n1", "n2", "n3")
	w.broken[events.PairOf("n1", "n2")] = true
	w.pass(8 * time.Second)
	w.expect()
}

// remembered is how much the machine keeps for a restart.
func (w *world) remembered() int {
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	return len(snapshot)
}

func TestEveryDirectionIsMeasuredInTurnAndSaidWhenItChanges(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	measured := func() map[string]int {
		count := map[string]int{}
		for _, event := range w.said {
			count[event.Subject]++
		}
		w.said = nil
		return count
	}
	w.machine = machine.New(machine.Defaults(cluster))
	for _, name := range w.names() {
		w.join(name, "a")
	}
	w.commit("g1", nil, w.names()...)
	w.pass(13 * time.Second)
	if got := measured(); len(got) != 12 {
		t.Errorf("expected all 12 directions once, got %v", got)
	}
	w.band *= 1.2 // not worth a word
	w.pass(26 * time.Second)
	if got := measured(); len(got) != 0 {
		t.Errorf("expected nothing, got %v", got)
	}
	w.band *= 2
	w.pass(26 * time.Second)
	if got := measured(); len(got) != 12 {
		t.Errorf("expected all 12 directions again, got %v", got)
	}
}

// consent lets n1 tell measurements of its links to others.
func (w *world) consent(incarnation string, to ...string) {
	w.t.Helper()
	consent := &events.Consent{Negotiation: "g2", Node: "n1", Incarnation: incarnation, Accepted: true}
	for _, peer := range to {
		consent.Measurements = append(consent.Measurements,
			events.Measurement{From: "n1", To: peer, RoundTripSeconds: 0.01, BandwidthBytesPerSecond: 1e6})
	}
	w.hear("/node/n1", events.Consented, "n1", consent)
}

// unmeasured is a world in which no link was measured yet.
func unmeasured(t *testing.T) *world {
	w := newWorld(t, "n1", "n2", "n3")
	w.machine = machine.New(machine.Defaults(cluster))
	for _, name := range w.names() {
		w.join(name, "a")
	}
	return w
}

func TestMeasurementsInAConsentBecomeFactsOfThatCause(t *testing.T) {
	w := unmeasured(t)
	w.consent("a", "n2", "n3", "n9") // n9 is nobody
	if len(w.said) != 2 || w.said[0].Subject != "n1-n2" || w.said[1].Subject != "n1-n3" || w.said[0].Cause == "" || w.said[0].ID == w.said[1].ID {
		t.Errorf("said %+v", w.said)
	}
}

func TestAConsentOfAnOldIncarnationTellsNothing(t *testing.T) {
	w := unmeasured(t)
	w.join("n1", "b")
	w.consent("a", "n2")
	if len(w.said) > 0 {
		t.Errorf("said %+v", w.said)
	}
}

// bandwidths tells what was said of links since the last time, by subject.
func (w *world) bandwidths() map[string]float64 {
	w.t.Helper()
	said := map[string]float64{}
	for _, event := range w.said {
		measured, err := events.Open[events.Measurement](event)
		if err != nil || measured.RoundTripSeconds != 0.01 {
			w.t.Errorf("said %+v, %v", event, err)
		}
		said[event.Subject] = measured.BandwidthBytesPerSecond
	}
	w.said = nil
	return said
}

func TestAReceiptRaisesWhatALinkIsSaidToCarryAndProbesLowerItAgain(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.pass(10 * time.Second)
	w.said = nil
	const enough = 100 << 20
	w.hear("/node/n1", events.ShardReceived, "n1", &events.Receipt{Negotiation: "g2", Node: "n1", Sources: []events.Received{
		{From: "n2", Bytes: enough, BytesPerSecond: 4e8},
		{From: "n3", Bytes: enough, BytesPerSecond: 2e7},  // the downlink was n2's
		{From: "", Bytes: enough, BytesPerSecond: 9e8},    // the hub
		{From: "n9", Bytes: enough, BytesPerSecond: 9e8},  // nobody
		{From: "n2", Bytes: 1 << 20, BytesPerSecond: 9e8}, // too little to tell
	}})
	if said := w.bandwidths(); len(said) != 1 || said["n2-n1"] != 4e8 {
		t.Fatalf("said %v", said)
	}
	w.pass(30 * time.Second) // probes see 1e8, as before
	if said := w.bandwidths(); len(said) != 0 {
		t.Fatalf("said %v, but nothing changed", said)
	}
	w.band /= 2
	w.pass(60 * time.Second)
	if said := w.bandwidths(); len(said) != 6 || said["n2-n1"] > 2.5e8 || said["n2-n1"] < 2e8 {
		t.Fatalf("said %v, expected half of what was proved", said)
	}
}

func TestWhatAReceiptProvedIsForgottenWithTheNode(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.pass(5 * time.Second)
	w.said = nil
	receipt := &events.Receipt{Negotiation: "g2", Node: "n1", Sources: []events.Received{{From: "n2", Bytes: 100 << 20, BytesPerSecond: 4e8}}}
	w.hear("/node/n1", events.ShardReceived, "n1", receipt)
	if said := w.bandwidths(); said["n2-n1"] != 4e8 {
		t.Fatalf("said %v", said)
	}
	w.join("n2", "b")
	w.commit("g3", nil, "n1", "n2")
	w.pass(5 * time.Second)
	if said := w.bandwidths(); said["n2-n1"] != 1e8 {
		t.Fatalf("said %v, expected what is probed", said)
	}
}

func TestAfterARestartEveryNodeHasAFullTimeoutOfGrace(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].frozen = true
	w.pass(3 * time.Second)
	w.broken[events.PairOf("n1", "n2")] = true
	w.pulse("n1", refused("n2"))
	w.expect("node.suspected n3", "link.lost n1-n2")
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	restarted := machine.New(machine.Defaults(cluster))
	if err := errors.Join(restarted.Restore([]byte("{")), restarted.Restore(snapshot)); err == nil {
		t.Error("expected an error for half a snapshot")
	}
	if again, err := restarted.Snapshot(); err != nil || string(again) != string(snapshot) {
		t.Errorf("%s\nis not\n%s", again, snapshot)
	}
	w.machine = restarted
	w.now = w.now.Add(time.Hour)
	w.pass(4 * time.Second)
	w.expect()
	w.broken = map[events.Pair]bool{}
	w.pass(10 * time.Second)
	w.expect("link.restored n1-n2", "node.lost n3")
}

func TestALossSaidJustBeforeACrashIsNotSaidAgain(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.nodes["n3"].dead = true
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	w.pulse("n1", refused("n3"))
	lost := w.said[0]
	w.expect("node.lost n3")
	w.machine = machine.New(machine.Defaults(cluster)) // nothing was remembered
	if err := w.machine.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	if said, err := w.machine.Handle(lost); err != nil || len(said) > 0 { // but the log has it
		t.Fatal(said, err)
	}
	w.pass(20 * time.Second)
	w.expect()
}

func TestTheFailureRateGrowsWithEachLoss(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4", "n5")
	failures := 0.0
	for _, name := range []string{"n5", "n4", "n3"} {
		w.nodes[name].dead = true
		w.pulse("n1", refused(name))
		state, err := events.Open[events.NodeState](w.said[len(w.said)-1])
		failures++
		// One failure a day is expected beforehand, and a few node-seconds have passed.
		if rate := (1 + failures) / (24 * 3600); err != nil || math.Abs(state.FailuresPerNodeSecond/rate-1) > 0.01 {
			t.Errorf("%s: %v failures a node-second, expected %v, %v", name, state.FailuresPerNodeSecond, rate, err)
		}
	}
}

func TestALossTellsHowLongLostNodesStayedAwaySoFar(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	expected := func(node string) float64 {
		t.Helper()
		w.nodes[node].frozen = true
		w.pass(30 * time.Second)
		at := slices.IndexFunc(w.said, func(event events.Event) bool { return event.Kind == events.NodeLost })
		lost, err := events.Open[events.NodeState](w.said[at])
		if err != nil || lost.Node != node {
			t.Fatalf("lost %s, expected %s: %v", lost.Node, node, err)
		}
		w.said = nil
		return lost.SecondsUntilReturn
	}
	if got := expected("n1"); got != 0 {
		t.Fatalf("nobody came back yet, but %v s are expected", got)
	}
	w.join("n1", "b")
	first := expected("n2")
	if first < 10 || first > 30 {
		t.Fatalf("n1 was away for less than 30 s, and %v s are expected", first)
	}
	w.pass(2 * time.Hour) // n2 stays away, and counts for an hour
	if got := expected("n3"); got < first+3600 || got > first+3660 {
		t.Fatalf("%v s are expected, after one stayed away for an hour and one for %v s", got, first)
	}
}

func TestLongNamesStillMakeASubject(t *testing.T) {
	long := strings.Repeat("N", 60)
	w := newWorld(t, long+"1", long+"2")
	w.broken[events.PairOf(long+"1", long+"2")] = true
	w.pulse(long+"1", refused(long+"2"))
	if len(w.said) != 1 || !events.Token(w.said[0].Subject) {
		t.Errorf("said %+v", w.said)
	}
}

// Whatever is killed, frozen, thawed and broken at random: no living node is lost on evidence, every loss is said
// once, and the same history says the same words.
func TestWhateverHappensEachLossIsSaidOnceAndTheMachineIsDeterministic(t *testing.T) {
	for seed := range uint64(60) {
		if first, second := churn(t, seed), churn(t, seed); first != second {
			t.Fatalf("seed %d: the same history said\n%s\nand\n%s", seed, first, second)
		}
	}
}

func churn(t *testing.T, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 7))
	w := newWorld(t, "n1", "n2", "n3", "n4", "n5", "n6")
	for range 40 {
		names := w.names()
		name, peer := names[random.IntN(len(names))], names[random.IntN(len(names))]
		node := w.nodes[name]
		switch random.IntN(6) {
		case 0:
			node.dead = true
		case 1:
			node.frozen = !node.frozen
		case 2:
			if name != peer {
				w.broken[events.PairOf(name, peer)] = !w.broken[events.PairOf(name, peer)]
			}
		case 3:
			w.join(name, fmt.Sprint("b", random.Uint32()))
		default:
			if name != peer {
				w.pulse(name, refused(peer))
			}
		}
		w.pass(time.Duration(random.IntN(30)) * 100 * time.Millisecond)
	}
	trace, lost := "", map[string]bool{}
	for _, event := range w.said {
		trace += fmt.Sprintf("%s %s %s\n", event.ID, event.Kind, event.Subject)
		if event.Kind == events.NodeLost {
			state, err := events.Open[events.NodeState](event)
			if err != nil || lost[state.Node+state.Incarnation] {
				t.Errorf("seed %d: %s of incarnation %s lost again (%v)", seed, state.Node, state.Incarnation, err)
			}
			lost[state.Node+state.Incarnation] = true
		}
	}
	return trace
}
