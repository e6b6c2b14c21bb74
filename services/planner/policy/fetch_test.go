package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Two pipelines of three stages; n1 and n4 hold the first third of the layers, and j joins with nothing.
func withJoiner() Situation {
	s := usual(6)
	for layer := range s.StateBytes {
		s.StateBytes[layer] = 1e9
	}
	s.Current = grid(2, 3, 6, 12)
	s.Nodes, s.MemoryBytes, s.Empty = append(s.Nodes, "j"), append(s.MemoryBytes, 1<<40), []string{"j"}
	return s
}

// instead is the plan in force with another node in one place.
func instead(s Situation, of, node string) []Pipeline {
	pipelines := renamed(s.Current, func(name string) string {
		if name == of {
			return node
		}
		return name
	})
	return pipelines
}

func TestLayersComeOverTheLinksOfTheirHolders(t *testing.T) {
	slow := func(from int, bytesPerSecond float64) Link { return Link{from, 6, 0.0005, bytesPerSecond, false} }
	for _, test := range []struct {
		what    string
		links   []Link
		dear    [][2]int
		seconds float64 // for 2 GB
	}{
		{what: "usual links: its downlink is one of them", seconds: 2},
		{what: "one holder is slow: the other sends nearly all", links: []Link{slow(0, 1e8)}, seconds: 2e9 / 1.1e9},
		{what: "both are slow", links: []Link{slow(0, 1e8), slow(3, 1e8)}, seconds: 10},
		{what: "those are slow who have nothing to give", links: []Link{slow(1, 1e8), slow(2, 1e8)}, seconds: 2},
		{what: "a fast link takes what it can", links: []Link{slow(0, 4e9)}, seconds: 2e9 / 4e9},
		{what: "both ways lead through the hub", dear: [][2]int{{0, 6}, {3, 6}}, seconds: 10},
	} {
		s := withJoiner()
		s.Network.Links, s.Network.Dear = test.links, test.dear
		if got := s.copySeconds(s.known(), instead(s, "n1", "j")); math.Abs(got-max(test.seconds, 2e9/s.bestInto(6))) > 1e-9 {
			t.Errorf("%s: %v s, want %v", test.what, got, test.seconds)
		}
	}
}

func (s Situation) bestInto(node int) float64 {
	best := s.Network.BytesPerSecond
	for _, link := range s.Network.Links {
		if link.To == node {
			best = max(best, link.BytesPerSecond)
		}
	}
	return best
}

func TestAHolderSendsToAllWhoAskOverOneUplink(t *testing.T) {
	s := withJoiner()
	s.Nodes, s.MemoryBytes, s.Empty = append(s.Nodes, "k"), append(s.MemoryBytes, 1<<40), append(s.Empty, "k")
	s = s.lose("n4") // n1 alone holds the first third now
	plan := instead(s, "n4", "j")
	if got := s.copySeconds(s.known(), plan); got != 2 {
		t.Errorf("one asks: %v s, want 2", got)
	}
	plan = append(plan, Pipeline{MicroBatches: 1, Stages: []Stage{{"k", estimate.Range{First: 0, End: 2}}}})
	if got := s.copySeconds(s.known(), plan); got != 4 {
		t.Errorf("two ask: %v s, want 4", got)
	}
}

// The twin looks at one layer of one node at a time, and at every link to it.
func TestNoPlanExpectsALayerBeforeItsHoldersCanHaveSentIt(t *testing.T) {
	moved := 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 21))
		s := randomSituation(random)
		found, err := Choose(s)
		if err != nil || len(s.Current) == 0 {
			continue
		}
		for _, candidate := range found {
			if candidate.Policy != anew.Name || candidate.CopySeconds == 0 {
				continue
			}
			moved++
			direct := s.slowestAlone(candidate.Pipelines)
			if candidate.CopySeconds < direct*(1-1e-12) {
				t.Fatalf("seed %d: %s in %v s, but one node alone takes %v", seed, candidate.Shape(), candidate.CopySeconds, direct)
			}
		}
	}
	if moved < 100 {
		t.Fatalf("only %d moves", moved)
	}
}

// slowestAlone is how long the slowest node takes for one of its layers while nobody else fetches.
func (s Situation) slowestAlone(pipelines []Pipeline) float64 {
	slowest, holds := 0.0, s.holds()
	for _, pipeline := range pipelines {
		for _, stage := range pipeline.Stages {
			to := slices.Index(s.Nodes, stage.Node)
			for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
				if has := holds[to]; layer >= has.First && layer < has.End {
					continue
				}
				rate := 0.0
				for from, has := range holds {
					if layer < has.First || layer >= has.End {
						continue
					}
					switch link := s.link(s.Nodes[from], stage.Node); {
					case slices.Contains(s.Network.Dear, [2]int{min(from, to), max(from, to)}):
						rate += relayedShare * s.Network.BytesPerSecond
					case link != nil:
						rate += link.BytesPerSecond
					default:
						rate += s.Network.BytesPerSecond
					}
				}
				if rate > 0 {
					slowest = max(slowest, float64(s.StateBytes[layer])/rate)
				}
			}
		}
	}
	return slowest
}

// A joiner is worth it where training goes on while it fetches, and not where all wait for that.
func TestWhatIsTrainedWhileLayersAreCopiedCounts(t *testing.T) {
	s := withJoiner()
	s.SecondsBetweenFailures = 100
	for layer := range s.StateBytes {
		s.StateBytes[layer] = 40e9
	}
	stay := Candidate{StepSeconds: 20, TransitionSeconds: s.SwitchSeconds}
	move := Candidate{StepSeconds: 15, TransitionSeconds: 80 + s.SwitchSeconds, CopySeconds: 80}
	if s.timed().score(move) > s.timed().score(stay) {
		t.Error("all wait: moved")
	}
	s.PreCopies = true
	timed := s.timed()
	timed.currentSeconds = 20
	if timed.score(move) <= timed.score(stay) {
		t.Error("training goes on: stayed")
	}
	if lost := s.lose("n4").timed(); lost.currentSeconds != 0 {
		t.Error("a node is lost, and the plan in force trains on")
	}
}
