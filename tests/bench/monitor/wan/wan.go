// Package wan draws what happens on a wide area network, and to the processes and the detector on it. Everything follows
// from a seed, so that each detector meets the same.
// Times are seconds since the start.
package wan

import (
	"math"
	"math/rand/v2"
	"sort"
)

// The model has eight sites of 25 nodes. A site's way out is cut every eight hours, for a median of 3 s, and one cut of a hundred lasts
// over 49 s; seven cuts of ten are of the way to other sites, too. Each process stalls every two hours, for a median of 0.8 s, and one
// stall of a hundred lasts over 10 s. The detector's process stalls every six hours.
const (
	Sites        = 8
	NodesOfASite = 25
	Nodes        = Sites * NodesOfASite

	cutEvery, cutMedian, cutSigma       = 8 * 3600, 3, 1.2
	stallEvery, stallMedian, stallSigma = 2 * 3600, 0.8, 1.086
	monitorEvery                        = 6 * 3600
	sharedCuts                          = 0.7

	leastDelay, mostDelay = 0.005, 0.120 // one way, of a site to the hub
	jitter                = 0.010        // mean of what is added to each message
	Loss                  = 0.003        // of the segments
	retransmission        = 0.3          // seconds more for one that was lost
	afterCut              = 1.0          // what was sent during a cut comes within so many seconds after it
)

// Interval is a time in which something is not as usual.
type Interval struct {
	From, To float64
	Shared   bool // a cut: of the way to other sites, too
}

// Intervals are in order, and do not overlap.
type Intervals []Interval

// At returns the interval that a moment is in.
func (is Intervals) At(t float64) (in Interval, ok bool) {
	i := sort.Search(len(is), func(i int) bool { return is[i].To > t })
	if i == len(is) || is[i].From > t {
		return Interval{}, false
	}
	return is[i], true
}

// Schedule is all that happens in a run.
type Schedule struct {
	Cuts    [Sites]Intervals
	Stalls  [Nodes]Intervals
	Monitor Intervals
	Delay   [Sites]float64 // one way to the hub
}

// Draw draws a schedule. A calm one has delays and no cuts or stalls.
func Draw(seed uint64, seconds float64, calm bool) *Schedule {
	random := rand.New(rand.NewPCG(seed, 5))
	s := &Schedule{}
	for site := range s.Cuts {
		s.Delay[site] = leastDelay + random.Float64()*(mostDelay-leastDelay)
		s.Cuts[site] = draw(random, seconds, cutEvery, cutMedian, cutSigma)
	}
	for node := range s.Stalls {
		s.Stalls[node] = draw(random, seconds, stallEvery, stallMedian, stallSigma)
	}
	s.Monitor = draw(random, seconds, monitorEvery, stallMedian, stallSigma)
	if calm {
		return &Schedule{Delay: s.Delay}
	}
	return s
}

// draw returns intervals that come at random, as long as a log-normal variable.
func draw(random *rand.Rand, seconds, every, median, sigma float64) (drawn Intervals) {
	for t := random.ExpFloat64() * every; t < seconds; t += random.ExpFloat64() * every {
		long := median * math.Exp(sigma*random.NormFloat64())
		drawn = append(drawn, Interval{t, t + long, random.Float64() < sharedCuts})
		t += long
	}
	return drawn
}

// SiteOf returns where a node stands.
func SiteOf(node int) int { return node / NodesOfASite }

// Arrival returns when something that a node sends comes to the hub.
func (s *Schedule) Arrival(random *rand.Rand, node int, sent float64) float64 {
	site := SiteOf(node)
	if cut, ok := s.Cuts[site].At(sent); ok {
		sent = cut.To + random.Float64()*afterCut
	}
	return sent + s.oneWay(random, site)
}

func (s *Schedule) oneWay(random *rand.Rand, site int) float64 {
	took := s.Delay[site] + random.ExpFloat64()*jitter
	if random.Float64() < Loss {
		took += retransmission
	}
	return took
}

// RoundTrip returns how long a question over the hub and its answer take; ok is false where a cut stops them.
func (s *Schedule) RoundTrip(random *rand.Rand, node int, at float64) (seconds float64, ok bool) {
	_, cut := s.Cuts[SiteOf(node)].At(at)
	return s.oneWay(random, SiteOf(node)) + s.oneWay(random, SiteOf(node)), !cut
}

// Between returns how long it takes from one node to another and back; ok is false where a cut stops it.
func (s *Schedule) Between(random *rand.Rand, a, b int, at float64) (seconds float64, ok bool) {
	from, to := SiteOf(a), SiteOf(b)
	if from == to {
		return 2 * leastDelay * random.Float64(), true
	}
	for _, site := range []int{from, to} {
		if cut, is := s.Cuts[site].At(at); is && cut.Shared {
			return 0, false
		}
	}
	return 2 * (s.oneWay(random, from) + s.oneWay(random, to)) / 2, true
}
