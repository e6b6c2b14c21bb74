package queue

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A source that knows no places sends a part from its beginning on. Bytes before its claim came from another already.
func TestWhoSendsAPartFromItsBeginningIsAskedForNothingThatCameWhereAnotherGivesIt(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 8))
		rates, sum, slowest := drawRates(random, 2+random.IntN(3), 5e6, 10)
		parts, inOrder := 12+random.IntN(12), 1+random.IntN(len(rates))
		s := simulate(parts, rates...)
		s.claim(Pieces)
		for _, source := range s.queue.Sources[:inOrder] {
			source.Gives = Untold
		}
		twice, limit := int64(0), 1.3*float64(parts+4)*testPart/sum+2*testPart/slowest
		for s.queue.Open > 0 && s.now.Sub(time.Unix(0, 0)).Seconds() < limit {
			s.step()
			twice += s.tell(s.queue.Sources[:inOrder])
		}
		if twice > 0 && inOrder < len(rates) || s.queue.Open > 0 {
			t.Errorf("seed %d: %d of %d sources in order: %d bytes came twice, %d of %d parts are open after %.1f s",
				seed, inOrder, len(rates), twice, s.queue.Open, parts, limit)
		}
	}
}

// tell has sources show by what they give first that they give it in order, and returns what comes before new claims of theirs.
func (s *simulation) tell(sources []*Source) (twice int64) {
	for _, source := range sources {
		for _, c := range source.claims {
			if s.began[c].Equal(s.now) {
				source.Gives = Ordered
				s.queue.Widen(c)
				twice += c.first
			}
		}
	}
	return twice
}

func TestAClaimThatIsWidenedGoesOnToTheEndOfItsPart(t *testing.T) {
	s := simulate(1, 0, 0)
	first, other := s.queue.Take(s.queue.Sources[0], s.now), s.queue.Sources[1]
	if s.queue.Widen(first); first.End != testPart || s.queue.Take(other, s.now) != nil {
		t.Errorf("it claims up to %d of %d bytes", first.End, testPart)
	}
}
