package queue

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// give has a claim's source send its next bytes, and reports whether the part is complete.
func (s *simulation) give(c *Claim, bytes int64) (complete bool) {
	_, wanted, hashes := s.queue.Reserve(c, c.Next, bytes, s.now)
	complete = s.queue.Stored(c, wanted, hashes)
	if c.Next == c.End {
		s.queue.Release(c, s.now)
	}
	return complete
}

func (s *simulation) blamed() (parts [3]int) {
	for i, source := range s.queue.Sources {
		parts[i] = source.Corrupt
	}
	return parts
}

// claim has the sources be asked for whole parts, or for pieces.
func (s *simulation) claim(as Giving) {
	for _, source := range s.queue.Sources {
		source.Gives = as
	}
}

func TestACorruptPartOfOneSourceIsFetchedWholeFromOthers(t *testing.T) {
	s := simulate(1, 100e6, 100e6, 100e6)
	s.claim(Whole)
	part := s.queue.waiting[0].part
	s.give(s.queue.Take(s.queue.Sources[1], s.now), testPart)
	if s.queue.Corrupted(part); s.blamed() != [3]int{0, 1, 0} {
		t.Fatalf("%v are blamed", s.blamed())
	}
	if again := s.queue.Take(s.queue.Sources[1], s.now); again != nil {
		t.Fatalf("the corrupt source is asked for %+v", again)
	}
	whole := s.queue.Take(s.queue.Sources[0], s.now)
	if whole == nil || whole.Next != 0 || whole.End != testPart || !s.give(whole, testPart) {
		t.Fatalf("another is asked for %+v", whole)
	}
}

// corruptPart has the first source give the first chunk of a part, the second the rest; the bytes are not those of the
// digest.
func corruptPart(t *testing.T) (s *simulation, part *Part) {
	t.Helper()
	s = simulate(1, 100e6, 100e6, 100e6)
	s.claim(Whole)
	part = s.queue.waiting[0].part
	first := s.queue.Take(s.queue.Sources[0], s.now)
	s.give(first, ChunkBytes)
	s.queue.Stall(first, s.now, stall)
	s.now = s.now.Add(time.Minute)
	if !s.give(s.queue.Take(s.queue.Sources[1], s.now), testPart-ChunkBytes) {
		t.Fatal("not complete")
	}
	s.claim(Pieces)
	if s.queue.Corrupted(part); s.blamed() != [3]int{} {
		t.Fatalf("%v are blamed, expected nobody yet", s.blamed())
	}
	return s, part
}

func TestACorruptPartOfSeveralSourcesIsAskedWholeOfOneAfterTheOther(t *testing.T) {
	s, part := corruptPart(t)
	for i, source := range s.queue.Sources {
		whole := s.queue.Take(source, s.now)
		if whole == nil || whole.Next != 0 || whole.End != testPart {
			t.Fatalf("source %d is asked for %+v", i, whole)
		}
		s.now = s.now.Add(time.Minute)
		if other := s.queue.Take(s.queue.Sources[(i+1)%3], s.now); other != nil {
			t.Fatalf("a second source is asked for %+v", other)
		}
		s.give(whole, testPart)
		s.queue.Corrupted(part)
		s.claim(Whole) // with one suspect nothing else asks for that
		if err := s.queue.Servable(); (i == 2) != errors.Is(err, ErrCorrupt) || source.Corrupt != 1 {
			t.Fatalf("after source %d: %v", i, err)
		}
	}
}

func TestAPartThatOneSourceIsToGiveBeginsAnewWithTheNext(t *testing.T) {
	for name, fail := range map[string]func(*simulation, *Claim){
		"it stalls":           func(s *simulation, c *Claim) { s.queue.Stall(c, s.now, stall) },
		"it has it no longer": func(s *simulation, c *Claim) { s.queue.Absent(c, s.now) },
	} {
		s, _ := corruptPart(t)
		whole := s.queue.Take(s.queue.Sources[0], s.now)
		s.give(whole, 3*ChunkBytes)
		fail(s, whole)
		if next := s.queue.Take(s.queue.Sources[1], s.now); next == nil || next.Next != 0 || next.End != testPart {
			t.Errorf("%s: the next source is asked for %+v", name, next)
		}
	}
}

// The twin notes of every byte who gave it last.
func TestNoCorruptPartPassesAndNoGoodSourceIsBlamed(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		s := simulate(1+random.IntN(6), 80e6, 40e6, 20e6)
		good := map[*Source]bool{}
		for _, source := range s.queue.Sources {
			good[source] = random.IntN(2) == 0
		}
		anyGood := slices.ContainsFunc(s.queue.Sources, func(source *Source) bool { return good[source] })
		gave := map[*Part]map[int64]*Source{}
		var failed error
		for steps := 0; s.queue.Open > 0 && failed == nil; steps++ {
			if steps > 200_000 {
				t.Fatalf("seed %d: never ends", seed)
			}
			s.now = s.now.Add(tick)
			source := s.queue.Sources[random.IntN(3)]
			s.queue.Take(source, s.now)
			if len(source.claims) == 0 {
				continue
			}
			c := source.claims[random.IntN(len(source.claims))]
			if random.IntN(15) == 0 {
				s.queue.Stall(c, s.now, stall)
				continue
			}
			if gave[c.Part] == nil {
				gave[c.Part] = map[int64]*Source{}
			}
			gave[c.Part][c.Next] = source
			if s.give(c, ChunkBytes) {
				failed = s.judge(c.Part, gave[c.Part], good)
			}
		}
		if anyGood == errors.Is(failed, ErrCorrupt) {
			t.Errorf("seed %d: %v, there are good sources: %t", seed, failed, anyGood)
		}
		for source, good := range good {
			if good && source.Corrupt > 0 {
				t.Errorf("seed %d: a good source is blamed for %d parts", seed, source.Corrupt)
			}
		}
	}
}

func (s *simulation) judge(part *Part, gave map[int64]*Source, good map[*Source]bool) error {
	for _, source := range gave {
		if !good[source] {
			s.queue.Corrupted(part)
			return s.queue.Servable()
		}
	}
	s.queue.Verified(part)
	return nil
}

func TestAPartThatOnlyACorruptSourceHasIsToldHoweverLateItComes(t *testing.T) {
	s := simulate(1, 10e6, 100e6)
	s.queue.Sources[0].Corrupt = corruptOut
	s.queue.Add(NewPart("", make([]byte, testPart), s.queue.Sources[:1]))
	err := s.queue.Servable()
	corrupt, is := errors.AsType[*Corrupt](err)
	if !errors.Is(err, ErrCorrupt) || !is || !slices.Equal(corrupt.Served, []string{s.queue.Sources[0].Name}) {
		t.Fatalf("got %v of %+v", err, corrupt)
	}
}

func TestOneForeignAnswerEndsNothingAndThreeLeaveTheSourceOut(t *testing.T) {
	s := simulate(1, 100e6)
	source := s.queue.Sources[0]
	for i := range foreignOut {
		if err := s.queue.Servable(); err != nil {
			t.Fatalf("after %d foreign answers: %v", i, err)
		}
		claim := s.queue.Take(source, s.now)
		if claim == nil {
			t.Fatalf("after %d foreign answers the source is not asked again", i)
		}
		s.queue.Foreign(claim, s.now)
		if s.queue.Take(source, s.now) != nil {
			t.Fatal("the source is asked again at once")
		}
		s.now = s.now.Add(foreignWait)
	}
	if err := s.queue.Servable(); !errors.Is(err, ErrCorrupt) || source.Corrupt != 1 {
		t.Errorf("%v, %d corrupt parts: expected ErrCorrupt, and that the source is blamed once", err, source.Corrupt)
	}
}

func TestASourceIsNeededForAPartUntilAnotherHasItAll(t *testing.T) {
	s := simulate(1, 100e6, 100e6)
	s.claim(Whole)
	mine, other := s.queue.Sources[0], s.queue.Sources[1]
	claim := s.queue.Take(mine, s.now)
	if !s.queue.Needs(mine, claim.Part) {
		t.Error("who is asked for it is not needed")
	}
	s.queue.Absent(claim, s.now)
	if !s.queue.Needs(mine, claim.Part) {
		t.Error("the part waits, and who will be asked again is not needed")
	}
	if s.queue.Take(other, s.now) == nil || s.queue.Needs(mine, claim.Part) {
		t.Error("who is asked for nothing of it is needed")
	}
}
