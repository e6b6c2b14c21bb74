package queue

import (
	"testing"
	"time"
)

// tailOf has the second source take over the tail of what the first, slower one is asked for.
func tailOf(t *testing.T) (s *simulation, first, tail *Claim) {
	s = simulate(1, 10e6, 100e6)
	s.queue.Sources[0].meter.planned, s.queue.Sources[1].meter.planned = 10e6, 30e6
	first = s.queue.Sources[0].claim(s.queue.waiting[0], s.now)
	s.queue.waiting = nil
	if tail = s.queue.Take(s.queue.Sources[1], s.now); tail == nil || tail.Next != first.End {
		t.Fatalf("took over %+v of %+v", tail, first)
	}
	return s, first, tail
}

// It asked for a part that takes four seconds, and would give all of it although another does.
func TestAConnectionIsGivenUpForWhatWasAskedOfItAndTakesTooLong(t *testing.T) {
	for rate, givenUp := range map[float64]bool{1e6: true, 5e6: false} {
		s := simulate(1, rate, 30e6)
		slow, fast := s.queue.Sources[0], s.queue.Sources[1]
		slow.meter.planned, fast.meter.planned = rate, 30e6
		c := slow.claim(s.queue.waiting[0], s.now)
		s.queue.waiting, c.asked = nil, testPart-ChunkBytes
		if tail := s.queue.Take(fast, s.now); tail == nil || slow.GivenUp != givenUp || givenUp != (tail.Next < c.asked) {
			t.Errorf("%.0f bytes/s: %+v is taken over, and the connection given up: %t", rate, tail, slow.GivenUp)
		}
	}
}

func TestATakeOverByWhoDoesNotHaveThePartGoesBack(t *testing.T) {
	s, first, tail := tailOf(t)
	s.queue.Absent(tail, s.now)
	if first.End != testPart || len(s.queue.waiting) != 0 {
		t.Fatalf("the first source is asked for %+v, and nobody for %+v", first, s.queue.waiting)
	}
	if again := s.queue.Take(s.queue.Sources[1], s.now.Add(time.Minute)); again != nil {
		t.Fatalf("it takes over %+v, though it did not have the part", again)
	}
}

func TestASourceThatStalledTakesOverNothing(t *testing.T) {
	s, _, tail := tailOf(t)
	s.queue.Stall(tail, s.now, stall)
	s.queue.waiting = nil
	if again := s.queue.Take(s.queue.Sources[1], s.now.Add(time.Minute)); again != nil {
		t.Fatalf("took over %+v", again)
	}
}

// Its silence is no rate to measure it by afterwards: nobody would ask it for anything again.
func TestASourceThatWasFrozenOnceGivesItsShareAgain(t *testing.T) {
	s := simulate(100, 50e6, 50e6)
	frozen := s.queue.Sources[0]
	for range 200 {
		s.step()
	}
	s.rates[0] = 0
	for range 1500 {
		s.step()
	}
	for len(frozen.claims) > 0 {
		s.queue.Stall(frozen.claims[0], s.now, stall)
	}
	s.rates[0] = 50e6
	before, left := frozen.meter.bytes, int64(0)
	for _, waiting := range s.queue.waiting {
		left += waiting.bytes()
	}
	s.run(t, time.Minute)
	if gave := frozen.meter.bytes - before; gave < left/3 {
		t.Errorf("it gave %d of %d bytes", gave, left)
	}
}

// A share of whole parts never ends when the others do.
func TestWhoIsDoneWithItsShareRelievesOthersBeforeItIsASpare(t *testing.T) {
	s := simulate(2, 100e6, 10e6)
	fast, slow := s.queue.Sources[0], s.queue.Sources[1]
	slow.Gives = Whole
	for _, waiting := range s.queue.waiting {
		waiting.part.waits[fast] = wait{until: s.now.Add(spareWait), spare: true}
	}
	s.step()
	if len(fast.claims) != 0 {
		t.Fatalf("who gave nothing is asked for %+v", fast.claims[0])
	}
	for range 100 {
		s.step()
	}
	fast.meter.bytes, fast.meter.earlier = testPart, 100e6
	relief := s.queue.Take(fast, s.now)
	if relief == nil || relief.End != testPart || relief.Next == 0 {
		t.Fatalf("who gave its share is asked for %+v", relief)
	}
	s.queue.Absent(relief, s.now)
	if again := s.queue.Take(fast, s.now); again != nil && again.Part == relief.Part {
		t.Fatalf("it is asked for %+v, though it did not have the part", again)
	}
	if len(slow.claims) != usualClaims {
		t.Fatalf("%d claims of who was relieved", len(slow.claims))
	}
	if spare := s.queue.Take(fast, s.now.Add(spareWait)); spare == nil {
		t.Error("it is asked for nothing when it is a spare")
	}
}

// A pause of 0.3 s is what a lost packet may cost.
func TestAPauseIsNoReasonToGiveAConnectionUp(t *testing.T) {
	s := simulate(2, 50e6, 50e6)
	pauses, idle := s.queue.Sources[0], s.queue.Sources[1]
	pauses.meter.planned, idle.meter.planned = 50e6, 50e6
	for _, waiting := range s.queue.waiting {
		pauses.claim(waiting, s.now).asked = testPart
	}
	s.queue.waiting = nil
	s.now = s.now.Add(50 * time.Millisecond)
	for range 4 {
		s.send(pauses.claims[0])
	}
	s.now = s.now.Add(300 * time.Millisecond)
	if c := s.queue.Take(idle, s.now); c != nil || pauses.GivenUp {
		t.Errorf("%+v is taken over, the connection given up: %t", c, pauses.GivenUp)
	}
}
