package queue

import (
	"slices"
	"testing"
	"time"
)

func TestNoTwoGiversAreToldToPutTheSamePartAhead(t *testing.T) {
	s := simulate(6, 10e6, 10e6)
	first := s.queue.Ahead(s.queue.Sources[0], 2*testPart, s.now)
	second := s.queue.Ahead(s.queue.Sources[1], 2*testPart, s.now)
	if len(first) != 2 || len(second) != 2 {
		t.Fatalf("%d and %d parts: expected as many bytes as were asked for", len(first), len(second))
	}
	for _, part := range second {
		if slices.Contains(first, part) {
			t.Error("both are told to put a part")
		}
	}
	if again := s.queue.Ahead(s.queue.Sources[0], 2*testPart, s.now); !slices.Equal(again, first) {
		t.Error("a giver is told another thing though nothing happened")
	}
}

func TestWhatAGiverThatIsAwayWasToPutAnotherPuts(t *testing.T) {
	s := simulate(1, 10e6, 10e6)
	away, other := s.queue.Sources[0], s.queue.Sources[1]
	s.queue.Ahead(away, testPart, s.now)
	away.Connected = false
	if parts := s.queue.Ahead(other, testPart, s.now); len(parts) != 1 {
		t.Errorf("%d parts", len(parts))
	}
}

func TestAPartThatIsLongerThanWhatMayBeAheadIsPutAloneAndASpareIsToldNothing(t *testing.T) {
	s := simulate(0, 10e6, 10e6)
	giver, spare := s.queue.Sources[0], s.queue.Sources[1]
	for range 2 {
		part := NewPart("", make([]byte, testPart), []*Source{giver})
		part.Spare(spare, s.now.Add(time.Second))
		s.queue.Add(part)
	}
	if parts := s.queue.Ahead(giver, testPart/2, s.now); len(parts) != 1 {
		t.Errorf("%d parts ahead", len(parts))
	}
	if parts := s.queue.Ahead(spare, testPart, s.now); len(parts) != 0 {
		t.Errorf("a spare is told to put %d parts before its time", len(parts))
	}
}

func TestASourceLeavesWhatAnotherPutsAheadForTheLast(t *testing.T) {
	s := simulate(2, 10e6, 10e6)
	giver, other := s.queue.Sources[0], s.queue.Sources[1]
	put := s.queue.Ahead(giver, testPart, s.now)
	if taken := s.queue.Take(other, s.now); taken == nil || taken.Part == put[0] {
		t.Fatal("it takes what the other puts, while something else waits")
	}
	if taken := s.queue.Take(other, s.now); taken == nil || taken.Part != put[0] {
		t.Error("it stands idle while something waits that it may give")
	}
}

func TestAGiverPutsNoMoreAheadThanItIsExpectedToGive(t *testing.T) {
	s := simulate(16, 90e6, 10e6)
	fast, slow := s.queue.Sources[0], s.queue.Sources[1]
	for range 200 { // milliseconds, in which the rates show
		s.step()
	}
	if parts := s.queue.Ahead(slow, 8*testPart, s.now); len(parts) > 1 {
		t.Errorf("%d parts ahead of a source that gives a tenth of what is left", len(parts))
	}
	if parts := s.queue.Ahead(fast, 8*testPart, s.now); len(parts) < 2 {
		t.Errorf("%d parts ahead of a source that gives most of what is left", len(parts))
	}
}
