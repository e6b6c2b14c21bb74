package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// simulation runs a queue against sources of known rates, on a clock of its own. Each source sends the chunks of its
// claims by turns.
type simulation struct {
	queue Queue
	now   time.Time
	rates []float64 // bytes/s
	turns []int
	owed  []float64     // bytes that a source had time to send
	opens time.Duration // in which nothing of a claim is asked for: its manifest is on its way
	began map[*Claim]time.Time
}

const (
	tick      = time.Millisecond
	testPart  = 4 << 20
	stall     = 1500 * time.Millisecond
	spareWait = time.Second
)

func simulate(parts int, rates ...float64) *simulation {
	s := &simulation{now: time.Unix(0, 0), rates: rates, turns: make([]int, len(rates)), owed: make([]float64, len(rates)),
		began: map[*Claim]time.Time{}}
	for range rates {
		s.queue.Sources = append(s.queue.Sources, &Source{Connected: true})
	}
	nobodyReads := make([]byte, testPart)
	for range parts {
		s.queue.Add(NewPart("", nobodyReads, s.queue.Sources))
	}
	return s
}

// step lets a millisecond pass.
func (s *simulation) step() {
	s.now = s.now.Add(tick)
	for i, p := range s.queue.Sources {
		for _, c := range slices.Clone(p.claims) {
			if c.Next == c.End { // taken over
				s.queue.Release(c, s.now)
			}
		}
		for c := s.queue.Take(p, s.now); c != nil; c = s.queue.Take(p, s.now) {
			s.began[c] = s.now
		}
		s.owed[i] = min(s.owed[i]+s.rates[i]*tick.Seconds(), 2*ChunkBytes)
		for s.owed[i] >= ChunkBytes && len(p.claims) > 0 {
			s.turns[i]++
			s.owed[i] -= ChunkBytes
			s.send(p.claims[s.turns[i]%len(p.claims)])
		}
	}
}

func (s *simulation) send(c *Claim) {
	if s.now.Sub(s.began[c]) < s.opens {
		return
	}
	if c.Next < c.End {
		_, wanted, hashes := s.queue.Reserve(c, c.Next, min(ChunkBytes, int64(len(c.Part.Bytes))-c.Next), s.now)
		if s.queue.Stored(c, wanted, hashes) {
			s.queue.Verified(c.Part)
		}
	}
	if c.Next == c.End {
		s.queue.Release(c, s.now)
	}
}

func (s *simulation) run(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	for s.queue.Open > 0 {
		if s.step(); s.now.Sub(time.Unix(0, 0)) > limit {
			t.Fatalf("%d parts are open after %v", s.queue.Open, limit)
		}
	}
	return s.now.Sub(time.Unix(0, 0))
}

// drawRates draws rates from the least up to so many times that.
func drawRates(random *rand.Rand, count int, least, times float64) (rates []float64, sum, slowest float64) {
	slowest = least * times
	for range count {
		rate := least * (1 + (times-1)*random.Float64())
		rates = append(rates, rate)
		sum, slowest = sum+rate, min(slowest, rate)
	}
	return rates, sum, slowest
}

// No schedule is faster than all sources sending all the time. What a source may be late is about a chunk of the
// slowest, which nobody can take from it without loss, and what it takes to learn its rate.
func TestSourcesOfAnyRatesEndTogether(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 4))
		rates, sum, slowest := drawRates(random, 1+random.IntN(5), 10e6, 20)
		parts := 20 + random.IntN(60)
		ideal := float64(parts) * testPart / sum
		took := simulate(parts, rates...).run(t, time.Hour).Seconds()
		if limit := 1.1*ideal + 2*ChunkBytes/slowest; took > limit {
			t.Errorf("seed %d: %d parts from %.0f bytes/s took %.3f s, %.3f s are possible", seed, parts, rates, took, ideal)
		}
	}
}

func TestATenthOfTheRateDoesNotHoldTheTail(t *testing.T) {
	s := simulate(16, 100e6, 10e6)
	ideal := 16 * testPart / 110e6
	if took := s.run(t, time.Minute).Seconds(); took > 1.05*ideal+ChunkBytes/10e6 {
		t.Errorf("took %.3f s, %.3f s are possible", took, ideal)
	}
}

// The rate falls to nothing in the middle, without a word.
func TestASourceThatSlowsDownLosesItsTail(t *testing.T) {
	s := simulate(16, 100e6, 100e6)
	for range 300 {
		s.step()
	}
	s.rates[1] = 1e6
	ideal := 0.3 + (16*testPart-0.3*200e6)/101e6
	if took := s.run(t, time.Minute).Seconds(); took > ideal+meterWindow.Seconds() {
		t.Errorf("took %.3f s, %.3f s are possible", took, ideal)
	}
}

// The last chunk of a part is one source's alone. Where its manifest takes a round trip to come and the other source looks
// for work meanwhile, each would take the chunk before the other has asked for it, and nobody would ever fetch it.
func TestTwoIdleSourcesDoNotTakeTheLastChunkFromEachOther(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 6))
		rates, sum, slowest := drawRates(random, 2, 1e6, 10)
		s := simulate(3, rates...)
		for i, p := range s.queue.Sources {
			p.meter.planned = rates[i]
		}
		s.opens = time.Duration(10+random.IntN(50)) * time.Millisecond
		ideal := 3*testPart/sum + 6*s.opens.Seconds()
		if took := s.run(t, time.Minute).Seconds(); took > 1.1*ideal+2*ChunkBytes/slowest {
			t.Errorf("seed %d: from %.0f bytes/s it took %.3f s, about %.3f s are possible", seed, rates, took, ideal)
		}
	}
}

func TestOneSourceIsAskedForTwoClaimsAtATime(t *testing.T) {
	s := simulate(5, 100e6)
	s.claim(Pieces)
	s.step()
	if claims := s.queue.Sources[0].claims; len(claims) != usualClaims || claims[0].End != claims[1].Next {
		t.Errorf("%d claims", len(claims))
	}
}

// When two parts of four MiB end together, a link of 400 MB/s would run dry for a round trip.
func TestAFastSourceIsAskedForMoreThanTwoClaims(t *testing.T) {
	for rate, claims := range map[float64]int{10e6: 2, 50e6: 3, 400e6: MostClaims} {
		s := simulate(9, rate)
		s.begun(rate)
		for s.queue.Take(s.queue.Sources[0], s.now) != nil {
		}
		if got := len(s.queue.Sources[0].claims); got != claims {
			t.Errorf("at %.0f bytes/s there are %d claims, expected %d", rate, got, claims)
		}
	}
}

// begun has the first source have given something already, at a rate.
func (s *simulation) begun(rate float64) {
	s.queue.Sources[0].meter.planned, s.queue.Sources[0].meter.bytes = rate, 1
}

// All of a claim is asked for at once: what another source could take over is what was not claimed.
func TestASourceClaimsWhatItsLinkCarriesInAWhile(t *testing.T) {
	for name, wanted := range map[string]struct {
		rate   float64
		begins bool
		whole  bool
		parts  int
		chunks int64
	}{
		"of unknown rate":             {0, true, false, 9, 4},
		"as its first":                {30e6, true, false, 9, 2},
		"later":                       {20e6, false, false, 9, 4},
		"less than a chunk":           {1, false, false, 9, 1},
		"a part at most":              {100e6, false, false, 9, 8},
		"where parts are given whole": {8e6, false, true, 9, 8},
	} {
		s := simulate(wanted.parts, wanted.rate)
		source := s.queue.Sources[0]
		if source.meter.planned = wanted.rate; !wanted.begins {
			s.begun(wanted.rate)
		}
		if wanted.whole {
			source.Gives = Whole
		}
		c := s.queue.Take(source, s.now)
		first, end := c.Piece()
		if first != 0 || end != c.End || end != wanted.chunks*ChunkBytes {
			t.Errorf("%s: it claims [%d, %d), expected %d chunks", name, first, end, wanted.chunks)
		}
	}
}

// Two parts of four MiB are 0.21 s of the link, of which a third are six chunks.
func TestASourceClaimsLessTowardsTheEnd(t *testing.T) {
	s := simulate(2, 40e6)
	s.begun(40e6)
	s.queue.Take(s.queue.Sources[0], s.now)
	if last := s.queue.Take(s.queue.Sources[0], s.now); last.End-last.Next != 6*ChunkBytes {
		t.Errorf("it claims [%d, %d)", last.Next, last.End)
	}
}

// A piece that its giver had no room for keeps its turn there by its name.
func TestWhatWasAskedForIsAskedForAgainAsItWas(t *testing.T) {
	s := simulate(3, 0)
	source := s.queue.Sources[0]
	claimed := s.queue.Take(source, s.now)
	s.queue.Absent(claimed, s.now)
	s.begun(1)
	again := s.queue.Take(source, s.now.Add(absentLongest))
	if again == nil || again.Part != claimed.Part || again.Next != claimed.Next || again.End != claimed.End {
		t.Errorf("%+v was asked for, and now %+v", claimed, again)
	}
}

// A giver puts for a claim what that began with.
func TestATailIsNoPartOfAClaimThatBeganWithLess(t *testing.T) {
	s := simulate(1, 0, 0)
	first, second := s.queue.Take(s.queue.Sources[0], s.now), s.queue.Take(s.queue.Sources[1], s.now)
	s.queue.Absent(second, s.now)
	if _, end := first.Piece(); first.End > end {
		t.Errorf("a claim of [0, %d) goes on to %d", end, first.End)
	}
	if taken := s.queue.Take(s.queue.Sources[1], s.now.Add(absentLongest)); taken == nil || taken.Next != second.Next {
		t.Errorf("%+v was given back, and %+v is taken", second, taken)
	}
}

// Those that nobody is asked for come first; behind them what a source may take over.
func TestTheUpcomingPartsOfASourceAreThoseItMayGive(t *testing.T) {
	s := simulate(4, 100e6, 100e6)
	first, last := s.queue.Sources[0], s.queue.Sources[1]
	taken, spare, next := s.queue.waiting[0].part, s.queue.waiting[1].part, s.queue.waiting[2].part
	first.claim(s.queue.waiting[0], s.now)
	s.queue.waiting = s.queue.waiting[1:]
	spare.waits[last] = wait{until: s.now.Add(spareWait)}
	if got := s.queue.Upcoming(last, 9, s.now); len(got) != 3 || got[0] != next || got[2] != taken {
		t.Errorf("got %d parts", len(got))
	}
	if got := s.queue.Upcoming(last, 2, s.now); len(got) != 2 {
		t.Errorf("got %d parts, expected two at most", len(got))
	}
}

// Whatever fails, and how often: every byte is asked for, stored once, and no part is complete before all its bytes
// are there. The twin counts bytes one by one.
func TestNoByteIsLostOrStoredTwiceWhateverFails(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		s := simulate(3+random.IntN(6), 80e6, 40e6, 5e6)
		had := map[*Part]map[int64]bool{}
		for steps := 0; s.queue.Open > 0; steps++ {
			if steps > 200_000 {
				t.Fatalf("seed %d: never ends", seed)
			}
			s.now = s.now.Add(tick)
			p := s.queue.Sources[random.IntN(3)]
			s.queue.Take(p, s.now)
			if len(p.claims) == 0 {
				continue
			}
			c := p.claims[random.IntN(len(p.claims))]
			switch random.IntN(12) {
			case 0:
				s.queue.Stall(c, s.now, stall)
			case 1:
				s.queue.Absent(c, s.now)
			default:
				before := c.Next
				s.deliver(t, seed, c, had)
				if c.Next == before && before != c.End {
					t.Fatalf("seed %d: a chunk was not taken", seed)
				}
			}
		}
	}
}

func (s *simulation) deliver(t *testing.T, seed uint64, c *Claim, had map[*Part]map[int64]bool) {
	if had[c.Part] == nil {
		had[c.Part] = map[int64]bool{}
	}
	if c.Next < c.End {
		offset, wanted, hashes := s.queue.Reserve(c, c.Next, ChunkBytes, s.now)
		if had[c.Part][offset] || wanted != ChunkBytes {
			t.Fatalf("seed %d: %d bytes at %d, there before: %t", seed, wanted, offset, had[c.Part][offset])
		}
		had[c.Part][offset] = true
		complete := s.queue.Stored(c, wanted, hashes)
		if all := len(had[c.Part]) == testPart/ChunkBytes; complete != all {
			t.Fatalf("seed %d: complete %t with %d chunks", seed, complete, len(had[c.Part]))
		}
		if complete {
			s.queue.Verified(c.Part)
		}
	}
	if c.Next == c.End {
		s.queue.Release(c, s.now)
	}
}

// A hash takes bytes in order and from one goroutine at a time.
func TestTwoClaimsNeverHashOnePartAtATime(t *testing.T) {
	s := simulate(1, 10e6, 100e6)
	s.queue.Sources[0].meter.planned, s.queue.Sources[1].meter.planned = 10e6, 30e6
	first := s.queue.Sources[0].claim(s.queue.waiting[0], s.now)
	s.queue.waiting = nil
	tail := s.queue.Take(s.queue.Sources[1], s.now)
	for first.Next < first.End-ChunkBytes {
		s.send(first)
	}
	_, _, hashes := s.queue.Reserve(first, first.Next, ChunkBytes, s.now)
	_, _, also := s.queue.Reserve(tail, tail.Next, ChunkBytes, s.now)
	if !hashes || also {
		t.Fatalf("the last chunk before the tail is hashed: %t, the tail's first meanwhile: %t", hashes, also)
	}
}
