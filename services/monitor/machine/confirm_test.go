package machine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine"
)

var joins = []events.Change{{Kind: events.ChangeJoin, Node: "n000"}}

// joined is a world of so many nodes of which the last ones joined: a negotiation told of their links to all others, both ways.
func joined(t *testing.T, nodes, joiners int) *world {
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%03d", i))
	}
	w := newWorld(t, names...)
	w.pass(30 * time.Second)
	told := &events.Measured{Negotiation: "g3"}
	opening := &events.Opening{Negotiation: "g3", Generation: 3, Changes: joins}
	for i, name := range names {
		opening.Members = append(opening.Members, events.Member{Node: name, Incarnation: "a", Address: name + ":1"})
		for j, other := range names {
			if i != j && (i >= nodes-joiners || j >= nodes-joiners) {
				told.Measurements = append(told.Measurements,
					events.Measurement{From: name, To: other, RoundTripSeconds: 0.01, BandwidthBytesPerSecond: 1e6})
			}
		}
	}
	w.hear("/negotiator", events.NegotiationOpened, "g3", opening)
	w.hear("/negotiator", events.LinksMeasured, "g3", told)
	w.commit("g3", nil, names...)
	w.said, w.asks = nil, nil
	return w
}

// twice is how many directions from or to any of some nodes were probed at least twice.
func (w *world) twice(nodes ...string) (twice int) {
	probes := map[[2]string]int{}
	for _, ask := range w.asks {
		if ask.Bytes > 0 && (slices.Contains(nodes, ask.Node) || slices.Contains(nodes, ask.Target)) {
			if probes[[2]string{ask.Node, ask.Target}]++; probes[[2]string{ask.Node, ask.Target}] == 2 {
				twice++
			}
		}
	}
	return twice
}

// The links of one joiner to 16 others are 32 directions, 64 probes: one a second for all nodes took 128 s, every second one of them.
func TestTheLinksOfAJoinerAreMeasuredAgainBySeveralAtOnce(t *testing.T) {
	for others, within := range map[int]time.Duration{3: 2 * time.Second, 16: 8 * time.Second, 40: 20 * time.Second} {
		w := joined(t, others+1, 1)
		w.pass(within + time.Second)
		if got, want := w.twice(w.names()[others]), 2*others; got != want {
			t.Errorf("beside %d others %d of %d directions were measured twice within %v", others, got, want, within)
		}
	}
}

func TestTheLinksOfEightJoinersTakeHardlyLongerThanThoseOfOne(t *testing.T) {
	w := joined(t, 24, 8)
	w.pass(25 * time.Second) // 8 x 16 x 2 + 8 x 7 directions, two each, eight in a round; 23 x 2 rounds are of each joiner
	if got, want := w.twice(w.names()[16:]...), 8*16*2+8*7; got != want {
		t.Errorf("%d of %d directions were measured twice", got, want)
	}
}

func TestWhatANegotiationToldIsKnownBetterAfterTwoProbes(t *testing.T) {
	w := joined(t, 6, 1)
	w.band = 1e6 // as it was told
	w.pass(4 * time.Second)
	said := w.uncertainties()
	for _, peer := range w.names()[:5] {
		if way := "n005-" + peer; !slices.Contains(said[way], 0.32) {
			t.Errorf("of the link %s %v was said", way, said[way])
		}
	}
}

func TestNoTwoProbesOfAJoinersLinksShareANodesWay(t *testing.T) {
	w := joined(t, 17, 4)
	type probe struct {
		ask   machine.Ask
		until time.Time
	}
	var under []probe
	began := w.now
	for w.now.Before(began.Add(time.Minute)) {
		w.now = w.now.Add(100 * time.Millisecond)
		for _, name := range w.names() {
			w.pulse(name)
		}
		under = slices.DeleteFunc(under, func(p probe) bool {
			if p.until.After(w.now) {
				return false
			}
			answer, gone := w.answer(p.ask)
			w.machine.Probed(p.ask, answer, gone, w.now)
			return true
		})
		w.machine.Tick(w.now)
		for _, ask := range w.machine.Asks() {
			w.asks = append(w.asks, ask)
			if ask.Bytes == 0 {
				continue
			}
			for _, other := range under {
				if other.ask.Node == ask.Node || other.ask.Target == ask.Target {
					t.Fatalf("%s measures its link to %s while %s does that to %s", ask.Node, ask.Target, other.ask.Node, other.ask.Target)
				}
			}
			under = append(under, probe{ask, w.now.Add(700 * time.Millisecond)}) // 256 KiB at 3 Mbit/s
		}
	}
	if got, want := w.twice(w.names()[13:]...), 4*13*2+4*3; got != want {
		t.Errorf("%d of %d directions were measured twice", got, want)
	}
}

func TestAnotherMonitorGoesOnWithWhatANegotiationTold(t *testing.T) {
	w := joined(t, 17, 1)
	w.pass(4 * time.Second)
	w.machine.Asks()
	w.restart()
	w.pass(8 * time.Second)
	if got := w.twice("n016"); got != 32 {
		t.Errorf("%d of 32 directions were measured twice", got)
	}
}

// A thousand nodes that start at once tell of eight links each, 8,000 directions.
func TestLinksOfAThousandThatStartAtOnceAreMeasuredWithinTheBound(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("n%04d", i))
	}
	w := newWorld(t, names...)
	opening := &events.Opening{Negotiation: "g3", Generation: 3, Changes: joins}
	told := &events.Measured{Negotiation: "g3"}
	for i, name := range names {
		opening.Members = append(opening.Members, events.Member{Node: name, Incarnation: "a", Address: name + ":1"})
		for peer := range 8 {
			told.Measurements = append(told.Measurements, events.Measurement{From: name, To: names[(i+1+97*peer)%len(names)],
				RoundTripSeconds: 0.01, BandwidthBytesPerSecond: 1e6})
		}
	}
	w.hear("/negotiator", events.NegotiationOpened, "g3", opening)
	w.hear("/negotiator", events.LinksMeasured, "g3", told)
	w.commit("g3", nil, names...)
	w.asks = nil
	for range 66 {
		before := len(w.asks)
		w.pass(time.Second)
		if probes := len(w.asks) - before; probes > 4*62+62+17 {
			t.Fatalf("%d probes in a second", probes)
		}
	}
	if got := w.twice(names...); got < 8000 {
		t.Errorf("%d of 8000 directions were measured twice", got)
	}
}
