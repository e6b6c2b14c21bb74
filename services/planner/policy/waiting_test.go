package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

// reduced is a data-parallel job whose gradients take a twentieth of a second of usual links, and three seconds to compute.
func reduced(nodes int) Situation {
	s := dataParallelJob(nodes)
	for i := range s.Layers {
		s.Layers[i].ForwardSeconds, s.Layers[i].BackwardSeconds = 0.05, 0.1
		s.GradientBytes[i] = 5_000_000
	}
	s.MicroBatches, s.GlobalBatch = 3*nodes, 3*nodes
	return s
}

// slow has links, both ways, between one node and some others.
func (s Situation) slow(node int, rate float64, others ...int) Situation {
	s.Network.Links = slices.Clone(s.Network.Links)
	for _, other := range others {
		s.Network.Links = append(s.Network.Links, Link{node, other, 0.001, rate, false}, Link{other, node, 0.001, rate, false})
	}
	return s
}

func answered(t *testing.T, s Situation) Candidate {
	t.Helper()
	all, err := Choose(s)
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func TestASlowPairIsNotPaidWhereTheRingNeedNotUseIt(t *testing.T) {
	s := reduced(4)
	free := answered(t, s).StepSeconds
	c := answered(t, s.slow(3, 1e6, 0))
	if len(microBatches(c)) != 4 || c.StepSeconds != free {
		t.Errorf("a step of %v s for %d nodes, expected %v for four", c.StepSeconds, len(microBatches(c)), free)
	}
}

func TestAPairWithoutADirectLinkIsNotPaidEither(t *testing.T) {
	s := reduced(4)
	free := answered(t, s).StepSeconds
	s.Network.Dear, s.Network.DearSeconds = [][2]int{{0, 3}}, 10
	if got := answered(t, s).StepSeconds; got != free {
		t.Errorf("a step of %v s, expected %v", got, free)
	}
}

func TestANodeWhoseLinksAreAllSlowWaitsAndIsToldWhatItNeeds(t *testing.T) {
	three, s := answered(t, reduced(4).lose("n4")).StepSeconds, reduced(4)
	for _, paid := range []bool{false, true} {
		rate := 1e6
		if paid { // as much as it was told
			rate = answered(t, s.slow(3, 1e6, 0, 1, 2)).Idle[0].NeedsBytesPerSecond * 1.001
		}
		c := answered(t, s.slow(3, rate, 0, 1, 2))
		switch {
		case paid && (len(microBatches(c)) != 4 || c.StepSeconds > three):
			t.Errorf("at %v bytes a second %v train, in %v s: expected all four, and at most %v s", rate, microBatches(c), c.StepSeconds, three)
		case !paid && (len(microBatches(c)) != 3 || c.StepSeconds != three || len(c.Idle) != 1 || c.Idle[0].Node != "n4"):
			t.Errorf("%+v: expected that n4 waits, and that the step takes %v s", c, three)
		case !paid && c.Idle[0].StepSeconds < 10*three:
			t.Errorf("with n4 a step would take %v s", c.Idle[0].StepSeconds)
		}
	}
}

func TestANodeThatNoBandwidthHelpsIsToldSo(t *testing.T) {
	s := reduced(4)
	for other := range 3 {
		s.Network.Links = append(s.Network.Links, Link{3, other, 5, 1e9, false}, Link{other, 3, 5, 1e9, false})
	}
	if c := answered(t, s); len(c.Idle) != 1 || c.Idle[0].NeedsBytesPerSecond != 0 {
		t.Errorf("%+v: expected one node with links of too long a delay", c.Idle)
	}
}

// The job goes through rates at which n4 is worth a little less or more than none at all: measurements scatter.
func TestANodeIsNotTakenInAndOutForALittle(t *testing.T) {
	s := reduced(4)
	without := answered(t, s.lose("n4")).StepSeconds
	at := func(worse float64) float64 { // the rate at which a step takes so many times as long
		rate := math.Inf(1)
		for r := 1e6; r < 1e9; r *= 1.001 {
			if s.slow(3, r, 0, 1, 2).stepOf([]int{0, 1, 2, 3}) <= worse*without {
				return r
			}
		}
		return rate
	}
	trains, waits := grid(4, 1, 6, 12), grid(3, 1, 6, 12)
	for _, test := range []struct {
		about   string
		current []Pipeline
		empty   []string
		worse   float64
		places  int
	}{
		{"joins at a small loss", waits, []string{"n4"}, 1.04, 4},
		{"joins at a loss", waits, []string{"n4"}, 1.06, 3},
		{"waits on at a small loss", waits, nil, 1.04, 3},
		{"comes in without one", waits, nil, 1, 4},
		{"trains on at a loss", trains, nil, 1.08, 4},
		{"is left out at a greater one", trains, nil, 1.18, 3},
	} {
		s := s.slow(3, at(test.worse), 0, 1, 2)
		s.Current, s.Empty = test.current, test.empty
		if got := len(microBatches(answered(t, s))); got != test.places {
			t.Errorf("n4 %s: %d nodes train, expected %d", test.about, got, test.places)
		}
	}
}

func TestNobodyWaitsWhereThatWouldLoseSomething(t *testing.T) {
	slow := reduced(3).slow(2, 1e6, 0, 1)
	if got := len(microBatches(answered(t, slow))); got != 2 {
		t.Fatalf("%d nodes train, expected two", got)
	}
	last, least, own, replicas, tight := slow, slow, slow, slow, slow
	last.Current, last.Empty = grid(3, 1, 6, 9), []string{"n1", "n2"}
	least.DataParallel.Least = 3
	own.KeepsAll = true
	replicas.MinReplicas = 3
	tight.Partitions, tight.OptimizerBytes, tight.MinReplicas = 3, []int64{60, 60, 60, 60, 60, 60}, 2
	tight.MemoryBytes = slices.Clone(tight.MemoryBytes)
	for i := range tight.MemoryBytes { // what each of three keeps, and not each of two
		tight.MemoryBytes[i] = tight.withPipelines(3).peakBytes([]estimate.Range{tight.model()}, 1)[0]
	}
	for about, s := range map[string]Situation{
		"the model": last, "a replica that the job must have": least, "its own data": own, "a replica that is asked for": replicas,
		"memory for the optimizer state": tight,
	} {
		if got := len(microBatches(answered(t, s))); got != 3 {
			t.Errorf("%d nodes train, though the third has %s", got, about)
		}
	}
}

// The slow twin tries every group of two nodes or more.
func TestWhoTrainsIsAboutAsFastAsTheBestGroup(t *testing.T) {
	const runs = 300
	worst, total := 0.0, 0.0
	for seed := range uint64(runs) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := reduced(3 + random.IntN(4))
		for a := range s.Nodes {
			for b := range a {
				if random.IntN(3) == 0 {
					s = s.slow(a, math.Exp(math.Log(1e6)+random.Float64()*math.Log(300)), b)
				}
			}
		}
		best := math.Inf(1)
		for chosen := uint(1); chosen < 1<<len(s.Nodes); chosen++ {
			if some := s.only(chosen); len(some.Nodes) > 1 {
				best = min(best, some.stepOf(upTo(len(some.Nodes))))
			}
		}
		found := answered(t, s).StepSeconds / best
		worst, total = max(worst, found), total+found
	}
	t.Logf("%.3f times the best group in the mean, %.2f times at worst", total/runs, worst)
	if total/runs > 1.05 {
		t.Errorf("%.3f times the best group in the mean, %.2f times at worst: expected 1.05", total/runs, worst)
	}
}

func TestOfALinkThatWasProbedOnceNobodyWaits(t *testing.T) {
	for _, test := range []struct {
		about  string
		unsure int // of the six links of n4
		waits  bool
	}{{"all were probed once", 6, false}, {"one was", 1, true}, {"those to two others were", 4, false}} {
		s := reduced(4).slow(3, 1e6, 0, 1, 2)
		for i := range test.unsure {
			s.Network.Links[i].Unsure = true
		}
		if waits := len(microBatches(answered(t, s))) == 3; waits != test.waits {
			t.Errorf("%s: n4 waits is %v", test.about, waits)
		}
	}
}

// n1 and n2 are a pair at a slower pace than n2 and n3 are.
func TestOfTwoPairsTheFasterOneTrains(t *testing.T) {
	s := reduced(3).slow(0, 1e7, 1).slow(0, 4e6, 2)
	c := answered(t, s)
	if batches := microBatches(c); len(batches) != 2 || batches["n1"] != 0 {
		t.Errorf("%v train in %v s, expected n2 and n3", batches, c.StepSeconds)
	}
}

// One node of three whose links are slow has most links be slow: the usual one is.
func TestANodeWaitsWhereMostLinksAreAsSlowAsItsOwn(t *testing.T) {
	s := reduced(3)
	s.Network.BytesPerSecond = 1e6
	s.Network.Links = []Link{{0, 1, s.Network.LatencySeconds, 1.25e9, false}, {1, 0, s.Network.LatencySeconds, 1.25e9, false}}
	c := answered(t, s)
	if len(microBatches(c)) != 2 || len(c.Idle) != 1 || c.Idle[0].Node != "n3" || c.Idle[0].NeedsBytesPerSecond < 2e6 {
		t.Errorf("%v train, %+v wait: expected that n3 waits for faster links", microBatches(c), c.Idle)
	}
	s.Network.Links = nil
	if c := answered(t, s); len(microBatches(c)) != 3 {
		t.Errorf("%v train, over links that are all alike", microBatches(c))
	}
}

// Each end of a link measures one direction of it: n1 says that its link to n2 is slow, and n2 that its own to n1 is not.
func TestNobodyWaitsForOneOtherNodesWord(t *testing.T) {
	for _, test := range []struct {
		about string
		slow  []Link
		waits string
	}{
		{"of its own link", []Link{{0, 1, 0.001, 1e6, false}}, "n1"},
		{"of both directions", []Link{{0, 1, 0.001, 1e6, false}, {1, 0, 0.001, 1e6, false}}, "n1 or n2"},
		{"of two others", []Link{{0, 1, 0.001, 1e6, false}, {2, 1, 0.001, 1e6, false}}, "n2"},
	} {
		s := reduced(3)
		s.Network.Links = test.slow
		c := answered(t, s)
		if len(c.Idle) != 1 || !strings.Contains(test.waits, c.Idle[0].Node) {
			t.Errorf("at a word %s: %+v wait, expected %s", test.about, c.Idle, test.waits)
		}
	}
}

// n1 is twice as fast as n2, and would train alone.
func TestOfTwoNodesTheSlowerOneWaitsWhereBothSayThatTheirLinkIsSlow(t *testing.T) {
	for both, want := range map[bool]int{false: 2, true: 1} {
		s := reduced(2).slow(0, 1e6, 1)
		s.MinReplicas, s.Speed = 1, []float64{2, 1}
		if !both {
			s.Network.Links = s.Network.Links[:1] // n1 says so
		}
		if got := len(microBatches(answered(t, s))); got != want {
			t.Errorf("both say so is %v: %d nodes train, expected %d", both, got, want)
		}
	}
}
