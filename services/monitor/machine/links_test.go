package machine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine"
)

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
	w.pass(2 * time.Minute) // until they are known well
	measured()
	w.band *= 1.05 // not worth a word
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

// The log refuses an event with the id of another: what it says would be lost, and the monitor would take it for said.
func TestTwoMeasurementsBetweenTwoHeartbeatsAreTwoEvents(t *testing.T) {
	w := unmeasured(t)
	probe := machine.Ask{Node: "n1", Target: "n2", Bytes: 1 << 20}
	for _, w.band = range []float64{1e6, 1e9} {
		answer, _ := w.answer(probe)
		w.note(w.machine.Probed(probe, answer, false, w.now))
	}
	if len(w.said) != 2 || w.said[0].Subject != "n1-n2" || w.said[0].ID == w.said[1].ID {
		t.Errorf("said %+v", w.said)
	}
}

// uncertainties tells how sure the monitor was of each direction, in turn, while it said so.
func (w *world) uncertainties() map[string][]float64 {
	w.t.Helper()
	said := map[string][]float64{}
	for _, event := range w.said {
		measured, err := events.Open[events.Measurement](event)
		if err != nil {
			w.t.Fatal(err)
		}
		said[event.Subject] = append(said[event.Subject], measured.Uncertainty)
	}
	w.said = nil
	return said
}

func TestALinkWhoseProbesAgreeBecomesMoreCertainInFewWordsAndOneWhoseProbesScatterDoesNot(t *testing.T) {
	w := unmeasured(t)
	w.commit("g1", nil, w.names()...)
	w.pass(5 * time.Minute)
	for way, said := range w.uncertainties() {
		if !slices.Equal(said, []float64{0, 0.32, 0.21, 0.13, 0.09}) {
			t.Errorf("%s: %v", way, said)
		}
	}
	dice := rand.New(rand.NewPCG(1, 2))
	for range 600 {
		w.band = 1e8 * (0.5 + dice.Float64())
		w.pass(time.Second)
	}
	for way, said := range w.uncertainties() {
		mean := 0.0
		for _, off := range said {
			mean += off / float64(len(said))
		}
		if len(said) > 40 || mean < 0.2 { // of 100 probes each
			t.Errorf("%s scatters by half: %v", way, said)
		}
	}
}

func TestWhatOneTransferProvedBeyondTheProbesIsUncertainUntilOthersAreAsFast(t *testing.T) {
	w := unmeasured(t)
	w.commit("g1", nil, w.names()...)
	w.pass(2 * time.Minute)
	w.said = nil
	for _, negotiation := range []string{"g2", "g3", "g4", "g5", "g6", "g7", "g8"} {
		w.hear("/node/n1", events.ShardReceived, "n1", &events.Receipt{Negotiation: negotiation, Node: "n1",
			Sources: []events.Received{{From: "n2", Bytes: 100 << 20, BytesPerSecond: 2.5e8}}})
	}
	w.pass(time.Minute)
	if said := w.uncertainties(); len(said) != 1 || !slices.Equal(said["n2-n1"], []float64{0, 0.19}) {
		t.Errorf("said %v", said)
	}
}

// connect has a negotiation tell measurements of links of n1 to others.
func (w *world) connect(to ...string) {
	w.t.Helper()
	w.connectFrom("n1", to...)
}

func (w *world) connectFrom(node string, to ...string) {
	w.t.Helper()
	opening := &events.Opening{Negotiation: "g2", Generation: 3, Changes: []events.Change{{Kind: events.ChangeJoin, Node: node}}}
	for _, name := range w.names() {
		opening.Members = append(opening.Members, events.Member{Node: name, Incarnation: "a", Address: name + ":1"})
	}
	w.hear("/negotiator", events.NegotiationOpened, "g2", opening)
	told := &events.Measured{Negotiation: "g2"}
	for _, peer := range to {
		told.Measurements = append(told.Measurements,
			events.Measurement{From: node, To: peer, RoundTripSeconds: 0.01, BandwidthBytesPerSecond: 1e6})
	}
	w.hear("/negotiator", events.LinksMeasured, "g2", told)
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

func TestMeasurementsThatANegotiationToldAreNotSaidAgain(t *testing.T) {
	w := unmeasured(t)
	w.connect("n2", "n3", "n9") // n9 is nobody
	w.commit("g1", nil, w.names()...)
	w.band = 1e6 // as it was told
	w.pass(11 * time.Second)
	said := w.uncertainties()
	for _, way := range []string{"n1-n2", "n1-n3"} {
		if slices.Contains(said[way], 0) {
			t.Errorf("said of %s how uncertain it is, %v: expected that it is known better", way, said[way])
		}
	}
	if len(said) != 6 {
		t.Errorf("said %d directions, want all", len(said))
	}
}

func TestAMeasurementThatContradictsAProofIsCorrected(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.pass(10 * time.Second)
	w.hear("/node/n2", events.ShardReceived, "n2", &events.Receipt{Negotiation: "g1", Node: "n2", Sources: []events.Received{
		{From: "n1", Bytes: 100 << 20, BytesPerSecond: 4e8},
	}})
	w.said = nil
	w.connect("n2")
	if len(w.said) != 1 || w.said[0].Kind != events.LinkMeasured || w.said[0].Subject != "n1-n2" || w.said[0].Cause == "" {
		t.Errorf("said %+v", w.said)
	}
}

// n1 was restarted while the negotiator handled the last consents.
func TestWhatAProcessMeasuredIsNotSaidOfTheOneThatTookItsPlace(t *testing.T) {
	w := unmeasured(t)
	w.join("n1", "b")
	w.connect("n2")
	w.commit("g1", nil, w.names()...)
	w.band = 1e6 // as the process before told
	w.pass(7 * time.Second)
	if said := w.uncertainties(); len(said) != 6 || !slices.Contains(said["n1-n2"], 0) {
		t.Errorf("said %+v, want all six directions, and of each first that nobody knows how uncertain it is", said)
	}
}

func TestWhatWasSaidOfALinkJustBeforeACrashIsNotSaidAgain(t *testing.T) {
	w := unmeasured(t)
	w.commit("g1", nil, w.names()...)
	for _, band := range []float64{1e8, 4e8} { // the memory knows nothing of a link, and then what it was before
		remembered, err := w.machine.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		w.band, w.said = band, nil
		w.pass(40 * time.Second)
		before := slices.Clone(w.said)
		w.machine, w.said = machine.New(machine.Defaults(cluster)), nil
		if err := w.machine.Restore(remembered); err != nil {
			t.Fatal(err)
		}
		for _, event := range before { // as the log has them
			if _, err := w.machine.Handle(event); err != nil {
				t.Fatal(err)
			}
		}
		w.pass(40 * time.Second)
		again := 0
		for _, event := range w.said { // that it is more certain by now is news
			isSame := func(other events.Event) bool { return bytes.Equal(other.Data, event.Data) }
			if slices.ContainsFunc(before, isSame) {
				again++
			}
		}
		if len(before) < 6 || again > 0 {
			t.Errorf("said %d directions before the crash, and %d again", len(before), again)
		}
	}
}

// With 100 nodes there are 9,900 directions, and two probes a second.
func TestOfManyNodesEachMeasuresFourLinksInTurnAndThoseThatJoinersTold(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	w := newWorld(t, names...)
	w.machine = machine.New(machine.Defaults(cluster))
	for _, name := range names {
		w.join(name, "a")
	}
	w.connectFrom("n00", "n50")
	w.commit("g1", nil, names...)
	w.band = 2e6 // the negotiation told half of it
	w.pass(205 * time.Second)
	said := map[string]int{}
	for _, event := range w.said {
		said[event.Subject]++
	}
	if len(said) != 401 || said["n00-n50"] == 0 || said["n00-n01"] == 0 || said["n00-n98"] == 0 || said["n00-n03"] != 0 {
		t.Errorf("%d directions were said", len(said))
	}
	w.said, w.band = nil, 1e6
	w.pass(820 * time.Second)
	if again := w.bandwidths(); again["n00-n50"] != 1e6 || again["n00-n01"] != 1e6 {
		t.Errorf("a joiner's link, confirmed long ago, carries %v now, and one of the four %v", again["n00-n50"], again["n00-n01"])
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
	w.pass(2 * time.Minute) // until it is sure
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
	receipt := &events.Receipt{Negotiation: "g2", Node: "n1",
		Sources: []events.Received{{From: "n2", Bytes: 100 << 20, BytesPerSecond: 4e8}}}
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
