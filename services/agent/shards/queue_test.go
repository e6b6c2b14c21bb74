package shards

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// simulation runs a queue against sources of known rates, on a clock of its own. Each source sends the chunks of its
// claims by turns.
type simulation struct {
	queue queue
	now   time.Time
	rates []float64 // bytes/s
	turns []int
	owed  []float64 // bytes that a source had time to send
}

const tick = time.Millisecond

func simulate(parts int, rates ...float64) *simulation {
	s := &simulation{now: time.Unix(0, 0), rates: rates, turns: make([]int, len(rates)), owed: make([]float64, len(rates))}
	for range rates {
		s.queue.peers = append(s.queue.peers, &peer{connected: true})
	}
	nobodyReads := make([]byte, testPart)
	for range parts {
		s.queue.add(s.part(nobodyReads))
	}
	return s
}

func (s *simulation) part(into []byte) *fetched {
	return &fetched{into: into, sources: s.queue.peers}
}

// step lets a millisecond pass.
func (s *simulation) step() {
	s.now = s.now.Add(tick)
	for i, p := range s.queue.peers {
		for s.queue.take(p, s.now) != nil {
		}
		s.owed[i] = min(s.owed[i]+s.rates[i]*tick.Seconds(), 2*chunkBytes)
		for s.owed[i] >= chunkBytes && len(p.claims) > 0 {
			s.turns[i]++
			s.owed[i] -= chunkBytes
			s.send(p.claims[s.turns[i]%len(p.claims)])
		}
	}
}

func (s *simulation) send(c *claim) {
	if c.next < c.end {
		offset, wanted, hashes := s.queue.reserve(c, c.next, min(chunkBytes, int64(len(c.part.into))-c.next), s.now)
		if s.queue.stored(c, offset, wanted, hashes) {
			s.queue.verified(c.part)
		}
	}
	if c.next == c.end {
		s.queue.release(c, s.now)
	}
}

func (s *simulation) run(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	for s.queue.open > 0 {
		if s.step(); s.now.Sub(time.Unix(0, 0)) > limit {
			t.Fatalf("%d parts are open after %v", s.queue.open, limit)
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
		if limit := 1.1*ideal + 2*chunkBytes/slowest; took > limit {
			t.Errorf("seed %d: %d parts from %.0f bytes/s took %.3f s, %.3f s are possible", seed, parts, rates, took, ideal)
		}
	}
}

func TestATenthOfTheRateDoesNotHoldTheTail(t *testing.T) {
	s := simulate(16, 100e6, 10e6)
	ideal := 16 * testPart / 110e6
	if took := s.run(t, time.Minute).Seconds(); took > 1.05*ideal+chunkBytes/10e6 {
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

func TestOneSourceIsAskedForTwoPartsAtATime(t *testing.T) {
	s := simulate(5, 100e6)
	s.step()
	if claims := s.queue.peers[0].claims; len(claims) != partsInFlight || claims[0].part == claims[1].part {
		t.Errorf("%d claims", len(claims))
	}
}

// When two parts of four MiB end together, a link of 400 MB/s would run dry for a round trip.
func TestAFastSourceIsAskedForMoreThanTwoParts(t *testing.T) {
	for rate, claims := range map[float64]int{10e6: 2, 50e6: 3, 400e6: mostPartsInFlight} {
		s := simulate(9, rate)
		s.queue.peers[0].meter.planned = rate
		for s.queue.take(s.queue.peers[0], s.now) != nil {
		}
		if got := len(s.queue.peers[0].claims); got != claims {
			t.Errorf("at %.0f bytes/s %d parts are asked for, expected %d", rate, got, claims)
		}
	}
}

// Those that nobody is asked for come first; behind them what a source may take over.
func TestTheUpcomingPartsOfASourceAreThoseItMayGive(t *testing.T) {
	s := simulate(4, 100e6, 100e6)
	first, last := s.queue.peers[0], s.queue.peers[1]
	taken, spare, next := s.queue.pieces[0].part, s.queue.pieces[1].part, s.queue.pieces[2].part
	s.queue.claim(first, s.queue.pieces[0], s.now)
	s.queue.pieces = s.queue.pieces[1:]
	spare.waits[last] = wait{until: s.now.Add(SpareWait)}
	if got := s.queue.upcoming(last, 9, s.now); len(got) != 3 || got[0] != next || got[2] != taken {
		t.Errorf("got %d parts", len(got))
	}
	if got := s.queue.upcoming(last, 2, s.now); len(got) != 2 {
		t.Errorf("got %d parts, expected two at most", len(got))
	}
}

// Whatever fails, and how often: every byte is asked for, stored once, and no part is complete before all its bytes
// are there. The twin counts bytes one by one.
func TestNoByteIsLostOrStoredTwiceWhateverFails(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		s := simulate(3+random.IntN(6), 80e6, 40e6, 5e6)
		had := map[*fetched]map[int64]bool{}
		for steps := 0; s.queue.open > 0; steps++ {
			if steps > 200_000 {
				t.Fatalf("seed %d: never ends", seed)
			}
			s.now = s.now.Add(tick)
			p := s.queue.peers[random.IntN(3)]
			s.queue.take(p, s.now)
			if len(p.claims) == 0 {
				continue
			}
			c := p.claims[random.IntN(len(p.claims))]
			switch random.IntN(12) {
			case 0:
				s.queue.stall(c, s.now, defaultStall)
			case 1:
				s.queue.absent(c, s.now)
			default:
				before := c.next
				s.deliver(t, seed, c, had)
				if c.next == before && before != c.end {
					t.Fatalf("seed %d: a chunk was not taken", seed)
				}
			}
		}
	}
}

func (s *simulation) deliver(t *testing.T, seed uint64, c *claim, had map[*fetched]map[int64]bool) {
	if had[c.part] == nil {
		had[c.part] = map[int64]bool{}
	}
	if c.next < c.end {
		offset, wanted, hashes := s.queue.reserve(c, c.next, chunkBytes, s.now)
		if had[c.part][offset] || wanted != chunkBytes {
			t.Fatalf("seed %d: %d bytes at %d, there before: %t", seed, wanted, offset, had[c.part][offset])
		}
		had[c.part][offset] = true
		complete := s.queue.stored(c, offset, wanted, hashes)
		if all := len(had[c.part]) == testPart/chunkBytes; complete != all {
			t.Fatalf("seed %d: complete %t with %d chunks", seed, complete, len(had[c.part]))
		}
		if complete {
			s.queue.verified(c.part)
		}
	}
	if c.next == c.end {
		s.queue.release(c, s.now)
	}
}

// A hash takes bytes in order and from one goroutine at a time.
func TestTwoClaimsNeverHashOnePartAtATime(t *testing.T) {
	s := simulate(1, 10e6, 100e6)
	s.queue.peers[0].meter.planned, s.queue.peers[1].meter.planned = 10e6, 30e6
	first := s.queue.claim(s.queue.peers[0], s.queue.pieces[0], s.now)
	s.queue.pieces = nil
	tail := s.queue.take(s.queue.peers[1], s.now)
	for first.next < first.end-chunkBytes {
		s.send(first)
	}
	_, _, hashes := s.queue.reserve(first, first.next, chunkBytes, s.now)
	_, _, also := s.queue.reserve(tail, tail.next, chunkBytes, s.now)
	if !hashes || also {
		t.Fatalf("the last chunk before the tail is hashed: %t, the tail's first meanwhile: %t", hashes, also)
	}
}

func TestAPartThatOnlyACorruptSourceHasIsToldHoweverLateItComes(t *testing.T) {
	s := simulate(1, 10e6, 100e6)
	s.queue.peers[0].corrupt = corruptOut
	part := s.part(make([]byte, testPart))
	part.sources = s.queue.peers[:1]
	s.queue.add(part)
	if err := s.queue.servable(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
}

// tailOf has the second source take over the tail of what the first, slower one is asked for.
func tailOf(t *testing.T) (s *simulation, first, tail *claim) {
	s = simulate(1, 10e6, 100e6)
	s.queue.peers[0].meter.planned, s.queue.peers[1].meter.planned = 10e6, 30e6
	first = s.queue.claim(s.queue.peers[0], s.queue.pieces[0], s.now)
	s.queue.pieces = nil
	if tail = s.queue.take(s.queue.peers[1], s.now); tail == nil || tail.next != first.end {
		t.Fatalf("took over %+v of %+v", tail, first)
	}
	return s, first, tail
}

// It asked for a part that takes four seconds, and would give all of it although another does.
func TestAConnectionIsGivenUpForWhatWasAskedOfItAndTakesTooLong(t *testing.T) {
	for rate, givenUp := range map[float64]bool{1e6: true, 5e6: false} {
		s := simulate(1, rate, 30e6)
		slow, fast := s.queue.peers[0], s.queue.peers[1]
		slow.meter.planned, fast.meter.planned = rate, 30e6
		c := s.queue.claim(slow, s.queue.pieces[0], s.now)
		s.queue.pieces, c.asked = nil, testPart-chunkBytes
		if tail := s.queue.take(fast, s.now); tail == nil || slow.givenUp != givenUp || givenUp != (tail.next < c.asked) {
			t.Errorf("%.0f bytes/s: %+v is taken over, and the connection given up: %t", rate, tail, slow.givenUp)
		}
	}
}

func TestATakeOverByWhoDoesNotHaveThePartGoesBack(t *testing.T) {
	s, first, tail := tailOf(t)
	s.queue.absent(tail, s.now)
	if first.end != testPart || len(s.queue.pieces) != 0 {
		t.Fatalf("the first source is asked for %+v, and nobody for %+v", first, s.queue.pieces)
	}
	if again := s.queue.take(s.queue.peers[1], s.now.Add(time.Minute)); again != nil {
		t.Fatalf("it takes over %+v, though it did not have the part", again)
	}
}

func TestASourceThatStalledTakesOverNothing(t *testing.T) {
	s, _, tail := tailOf(t)
	s.queue.stall(tail, s.now, defaultStall)
	s.queue.pieces = nil
	if again := s.queue.take(s.queue.peers[1], s.now.Add(time.Minute)); again != nil {
		t.Fatalf("took over %+v", again)
	}
}

// Its silence is no rate to measure it by afterwards: nobody would ask it for anything again.
func TestASourceThatWasFrozenOnceGivesItsShareAgain(t *testing.T) {
	s := simulate(100, 50e6, 50e6)
	frozen := s.queue.peers[0]
	for range 200 {
		s.step()
	}
	s.rates[0] = 0
	for range 1500 {
		s.step()
	}
	for len(frozen.claims) > 0 {
		s.queue.stall(frozen.claims[0], s.now, defaultStall)
	}
	s.rates[0] = 50e6
	before, left := frozen.meter.bytes, int64(0)
	for _, waiting := range s.queue.pieces {
		left += waiting.bytes()
	}
	s.run(t, time.Minute)
	if gave := frozen.meter.bytes - before; gave < left/3 {
		t.Errorf("it gave %d of %d bytes", gave, left)
	}
}

func TestAPartWithAHoleIsAskedOfAnother(t *testing.T) {
	s := simulate(1, 100e6, 100e6)
	worn, part := s.queue.peers[0], s.queue.pieces[0].part
	for i := range 2 {
		s.now = s.now.Add(time.Minute)
		c := s.queue.take(worn, s.now)
		c.object = "the same"
		if err := s.queue.hole(c, s.now); err != nil {
			t.Fatal(err)
		}
		if mayServe := part.mayServe(worn); mayServe != (i == 0) {
			t.Fatalf("after %d holes it may serve the part: %t", i+1, mayServe)
		}
	}
	if other := s.queue.take(s.queue.peers[1], s.now); other == nil || other.part != part {
		t.Fatalf("the other is asked for %+v", other)
	}
}

// A share of whole parts never ends when the others do.
func TestWhoIsDoneWithItsShareRelievesOthersBeforeItIsASpare(t *testing.T) {
	s := simulate(2, 100e6, 10e6)
	fast, slow := s.queue.peers[0], s.queue.peers[1]
	for _, waiting := range s.queue.pieces {
		waiting.part.waits[fast] = wait{until: s.now.Add(SpareWait), spare: true}
	}
	s.step()
	if len(fast.claims) != 0 {
		t.Fatalf("who gave nothing is asked for %+v", fast.claims[0])
	}
	for range 100 {
		s.step()
	}
	fast.meter.bytes, fast.meter.earlier = testPart, 100e6
	relief := s.queue.take(fast, s.now)
	if relief == nil || relief.end != testPart || relief.next == 0 {
		t.Fatalf("who gave its share is asked for %+v", relief)
	}
	s.queue.absent(relief, s.now)
	if again := s.queue.take(fast, s.now); again != nil && again.part == relief.part {
		t.Fatalf("it is asked for %+v, though it did not have the part", again)
	}
	if len(slow.claims) != partsInFlight {
		t.Fatalf("%d claims of who was relieved", len(slow.claims))
	}
	if spare := s.queue.take(fast, s.now.Add(SpareWait)); spare == nil {
		t.Error("it is asked for nothing when it is a spare")
	}
}

// A pause of 0.3 s is what a lost packet may cost.
func TestAPauseIsNoReasonToGiveAConnectionUp(t *testing.T) {
	s := simulate(2, 50e6, 50e6)
	pauses, idle := s.queue.peers[0], s.queue.peers[1]
	pauses.meter.planned, idle.meter.planned = 50e6, 50e6
	for _, waiting := range s.queue.pieces {
		s.queue.claim(pauses, waiting, s.now).asked = testPart
	}
	s.queue.pieces = nil
	s.now = s.now.Add(50 * time.Millisecond)
	for range 4 {
		s.send(pauses.claims[0])
	}
	s.now = s.now.Add(300 * time.Millisecond)
	if c := s.queue.take(idle, s.now); c != nil || pauses.givenUp {
		t.Errorf("%+v is taken over, the connection given up: %t", c, pauses.givenUp)
	}
}
