package queue

import (
	"math/rand/v2"
	"testing"
	"time"
)

const roundTrip = 50 * time.Millisecond

// What is on its way is lost with the receiver, and nobody can take it over. A claim that awaits nothing would never
// ask again.
func TestAsManyChunksAreAskedForAsTheLinkCarriesInARoundTripAndAWhile(t *testing.T) {
	for rate, chunks := range map[float64]int{1: 2, 10e6: 5, 30e6: 15} {
		s := simulate(4, rate)
		if asked := s.askFirst(rate); asked != chunks {
			t.Errorf("at %.0f bytes/s %d chunks are asked for, expected %d", rate, asked, chunks)
		}
	}
}

// Three parts of four MiB take both links 0.16 s, and the slower one carries six chunks of them. Who gives nothing is
// no help.
func TestASourceIsAskedForWhatItSendsUntilAllAreDone(t *testing.T) {
	for gives, chunks := range map[bool]int{true: 6, false: 10} {
		s := simulate(3, 20e6, 60e6)
		other := s.queue.Sources[1]
		other.meter.planned = 60e6
		if gives {
			other.claim(s.queue.waiting[2], s.now)
			s.queue.waiting = s.queue.waiting[:2]
		}
		if asked := s.askFirst(20e6); asked != chunks {
			t.Errorf("%d chunks are asked for, expected %d; the other gives: %t", asked, chunks, gives)
		}
	}
}

// Its first chunks are on their way while the last are put, and what lies where is told behind them.
func TestASourceOfPiecesIsAskedForAllOfAClaim(t *testing.T) {
	for _, gives := range []Giving{Untold, Pieces} {
		s := simulate(4, 1)
		source := s.queue.Sources[0]
		source.Gives = gives
		c := source.claim(s.queue.waiting[0], s.now)
		for chunk := range int64(testPart / ChunkBytes) {
			if offset, wanted := s.queue.Ask(c, s.now); !wanted || offset != chunk*ChunkBytes {
				t.Errorf("it is asked for %d, %t, expected %d", offset, wanted, chunk*ChunkBytes)
			}
		}
		if _, wanted := s.queue.Ask(c, s.now); wanted {
			t.Error("it is asked for more than was claimed")
		}
	}
	s := simulate(6, 10e9)
	chunks := s.askFirstAs(Pieces, 10e9, 6)
	if chunks != piecesAsked/ChunkBytes {
		t.Errorf("over a fast link %d chunks are asked for", chunks)
	}
}

// askFirst asks the first source for all it may be asked for at the beginning, and forgets it again.
func (s *simulation) askFirst(rate float64) (chunks int) { return s.askFirstAs(Whole, rate, 2) }

// askFirstAs asks for so many parts.
func (s *simulation) askFirstAs(gives Giving, rate float64, parts int) (chunks int) {
	p := s.queue.Sources[0]
	p.meter.planned, p.RoundTrip, p.Gives = rate, roundTrip, gives
	var claims []*Claim
	for _, waiting := range s.queue.waiting[:parts] {
		claims = append(claims, p.claim(waiting, s.now))
	}
	s.queue.waiting = s.queue.waiting[parts:]
	for range testPart / ChunkBytes {
		for _, c := range claims {
			if _, wanted := s.queue.Ask(c, s.now); wanted {
				chunks++
			}
		}
	}
	for _, c := range claims {
		s.queue.Release(c, s.now)
	}
	if p.asked != 0 {
		return -1 // bytes are awaited of nobody
	}
	return chunks
}

// flight is a chunk on its way.
type flight struct {
	claim    *Claim
	at       int64
	arrives  time.Time
	unneeded bool
}

// asking is a simulation in which sources send what they are asked for, a round trip later at the earliest.
type asking struct {
	*simulation
	flights [][]flight // by source, in order
	free    []time.Time
}

func (a *asking) step() {
	a.now = a.now.Add(tick)
	for i, p := range a.queue.Sources {
		for a.queue.Take(p, a.now) != nil {
		}
		for len(a.flights[i]) > 0 && !a.now.Before(a.flights[i][0].arrives) {
			came := a.flights[i][0]
			a.flights[i] = a.flights[i][1:]
			a.land(p, came)
		}
		for _, c := range p.claims {
			a.ask(i, c)
		}
	}
}

func (a *asking) ask(i int, c *Claim) {
	for at, wanted := a.queue.Ask(c, a.now); wanted; at, wanted = a.queue.Ask(c, a.now) {
		begins := a.now.Add(roundTrip)
		if begins.Before(a.free[i]) {
			begins = a.free[i]
		}
		a.free[i] = begins.Add(time.Duration(ChunkBytes / a.rates[i] * 1e9))
		a.flights[i] = append(a.flights[i], flight{claim: c, at: at, arrives: a.free[i]})
	}
}

func (a *asking) land(p *Source, came flight) {
	c := came.claim
	if came.unneeded {
		p.Duplicate += ChunkBytes
		return
	}
	_, wanted, hashes := a.queue.Reserve(c, came.at, ChunkBytes, a.now)
	if a.queue.Stored(c, wanted, hashes) {
		a.queue.Verified(c.Part)
	}
	if c.Next < c.End {
		return
	}
	a.queue.Release(c, a.now)
	for i := range a.flights {
		for j := range a.flights[i] {
			a.flights[i][j].unneeded = a.flights[i][j].unneeded || a.flights[i][j].claim == c
		}
	}
}

// A slow source that is asked for a quarter of a second ahead ends so much later than the others, who cannot take over
// what it was asked for. What nobody can avoid is the first round trip, and some chunks of the slowest.
func TestSourcesThatAreAskedAheadEndTogetherAndSendNothingTwice(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 6))
		rates, sum, slowest := drawRates(random, 2+random.IntN(4), 12e6, 10)
		parts := 20 + random.IntN(30)
		a := asking{simulate(parts, rates...), make([][]flight, len(rates)), make([]time.Time, len(rates))}
		duplicate := int64(0)
		for i, p := range a.queue.Sources {
			p.meter.planned, p.RoundTrip = rates[i], roundTrip
		}
		for a.queue.Open > 0 {
			a.step()
		}
		for _, p := range a.queue.Sources {
			duplicate += p.Duplicate
		}
		took, ideal := a.now.Sub(time.Unix(0, 0)).Seconds(), float64(parts)*testPart/sum
		if limit := ideal + roundTrip.Seconds() + 4*ChunkBytes/slowest; took > limit || duplicate > 0 {
			t.Errorf("seed %d: %.0f bytes/s took %.3f s, %.3f s are possible; %d bytes came twice",
				seed, rates, took, ideal, duplicate)
		}
	}
}
