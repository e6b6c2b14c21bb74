package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/tests/links"
)

func TestADrawIsInThePapersRangesAndTheSameEveryTime(t *testing.T) {
	counts := map[int]int{}
	for seed := range uint64(200) {
		s := draw(seed)
		counts[len(s.Neighbours)]++
		if len(s.Relays) != len(s.Neighbours) || s.String() != draw(seed).String() {
			t.Errorf("seed %d: %d relays of %d neighbours, drawn again: %s", seed, len(s.Relays), len(s.Neighbours), draw(seed))
		}
		for _, shape := range append(append(s.Neighbours, s.Relays...), s.Store) {
			if shape.MegabitsPerSecond < 100 || shape.MegabitsPerSecond > 1000 || shape.Delay < 10*time.Millisecond ||
				shape.Delay > 20*time.Millisecond {
				t.Errorf("seed %d: %+v", seed, shape)
			}
		}
	}
	if len(counts) != 4 || counts[3] == 0 || counts[6] == 0 {
		t.Errorf("%v times so many neighbours, want 3 to 6", counts)
	}
}

// The twin lets the links run for one tick after another.
func TestTheBoundIsWhenLinksThatNeverRestHaveBroughtAll(t *testing.T) {
	for seed := range uint64(30) {
		s := draw(seed)
		for _, bytes := range []float64{100e3, 20e6, 187e6} {
			const tick = 1e-5
			seconds := 0.0
			for left := bytes; left > 0; seconds += tick {
				for _, shape := range s.Neighbours {
					if seconds >= 2*shape.Delay.Seconds()-0.005 {
						left -= shape.MegabitsPerSecond * 1e6 / 8 * 1448 / 1500 * tick
					}
				}
			}
			if got := boundSeconds(bytes, s.Neighbours); math.Abs(got-seconds) > 5*tick {
				t.Errorf("seed %d, %v bytes: %v s, the links take %v", seed, bytes, got, seconds)
			}
		}
	}
}

func TestEverySourceHasAnEvenShareAndEveryPartComesOnce(t *testing.T) {
	for parts := range 50 {
		pulls, seen := even(make([]source, 4), parts), map[int]int{}
		for _, pull := range pulls {
			if share := len(pull.Parts); len(pull.Sources) != 1 || share < parts/4 || share > parts/4+1 {
				t.Errorf("%d parts: %d from one of %d", parts, share, len(pull.Sources))
			}
			for _, part := range pull.Parts {
				seen[part]++
			}
		}
		for part := range parts {
			if seen[part] != 1 {
				t.Errorf("%d parts: part %d comes %d times", parts, part, seen[part])
			}
		}
	}
}

// The twin gives one part after the other to whoever would be done with it first.
func TestFixedSharesAreThoseOfTheGreedyOfChaos(t *testing.T) {
	for seed := range uint64(50) {
		s := draw(seed)
		const parts = 59
		counts := make([]int, len(s.Neighbours))
		for range parts {
			best, soonest := 0, math.Inf(1)
			for i, shape := range s.Neighbours {
				if ends := 2*shape.Delay.Seconds() + float64(counts[i]+1)*partBytes/shape.BytesPerSecond(); ends < soonest {
					best, soonest = i, ends
				}
			}
			counts[best]++
		}
		sources := make([]source, len(s.Neighbours))
		for i := range sources {
			sources[i].Bucket = bucket(i)
		}
		pulls, err := s.shares(sources, parts)
		if err != nil {
			t.Fatal(err)
		}
		for i, count := range counts {
			taken := 0
			for _, pull := range pulls {
				if pull.Sources[0].Bucket == bucket(i) {
					taken = len(pull.Parts)
				}
			}
			if taken != count {
				t.Errorf("seed %d: %d parts of neighbour %d, want %d", seed, taken, i, count)
			}
		}
	}
}

func TestPlannedPartsComeFromTheirShareAndHaveAllSources(t *testing.T) {
	sources := []source{{Bucket: "a"}, {Bucket: "b"}, {Bucket: "c"}}
	whole := planned(fixed(sources, []int64{2, 0, 1}), sources)
	if len(whole) != 1 || !slices.Equal(whole[0].Sources, sources) || !slices.Equal(whole[0].Parts, []int{0, 1, 2}) ||
		!slices.Equal(whole[0].Givers, []int{0, 0, 2}) {
		t.Errorf("%+v", whole)
	}
}

func TestTheFastestNeighbourHasTheFastestLink(t *testing.T) {
	s := scenario{Neighbours: []links.Shape{{MegabitsPerSecond: 300}, {MegabitsPerSecond: 700}, {MegabitsPerSecond: 500}}}
	if s.fastest() != 1 {
		t.Errorf("neighbour %d, want 1", s.fastest())
	}
}

func TestIdleIsWhatStepsTookLonger(t *testing.T) {
	undisturbed := []Trained{{Steps: 10, Seconds: 1}, {Steps: 20, Seconds: 1}}
	disturbed := []Trained{{Steps: 20, Seconds: 2.5}, {Steps: 20, Seconds: 1.25}}
	if got := idle(undisturbed, disturbed); math.Abs(got-0.75) > 1e-9 {
		t.Errorf("%v s, want 0.75", got)
	}
}

// sample is four neighbours whose links bring 100 MB in a good second, and how long our policy and the others took.
func sample(ours, single, others float64) outcome {
	s := scenario{}
	for range 4 {
		s.Neighbours = append(s.Neighbours, links.Shape{MegabitsPerSecond: 200})
	}
	o := outcome{scenario: s, Bytes: 100e6,
		Policies: []passage{{Policy: policyOurs, Seconds: ours}, {Policy: policySingle, Seconds: single}}}
	for _, policy := range []string{policyEven, policyRelays, policyCheckpoint} {
		o.Policies = append(o.Policies, passage{Policy: policy, Seconds: others})
	}
	return o
}

func TestAFigureHoldsWhereItReachesItsTarget(t *testing.T) {
	for _, c := range []struct {
		name    string
		outcome outcome
		fails   int
	}{
		{"near the bound and ahead of all", sample(1.05, 2.2, 1.1), 0},
		{"far from the bound", sample(1.2, 2.5, 1.3), 2}, // and of the links' rates
		{"slower than even shares", sample(1.05, 2.2, 1.04), 3},
		{"not twice as fast as the fastest neighbour", sample(1.05, 2.0, 1.1), 1},
	} {
		fails := 0
		for _, figure := range c.outcome.figures() {
			if !figure.Holds {
				fails++
			}
		}
		if fails != c.fails {
			t.Errorf("%s: %d figures fail, want %d: %+v", c.name, fails, c.fails, c.outcome.figures())
		}
	}
}

func TestOnlyUnevenLinksThatAllowItAskForTwiceTheFastest(t *testing.T) {
	one := scenario{Neighbours: []links.Shape{{MegabitsPerSecond: 900}, {MegabitsPerSecond: 100}, {MegabitsPerSecond: 100},
		{MegabitsPerSecond: 100}}}
	if uneven(one) {
		t.Error("one link has three quarters of the rate, and nobody is twice as fast as it")
	}
}
