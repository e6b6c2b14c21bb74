package rest

import (
	"testing"
	"time"
)

// script is one that is looked at.
type script struct {
	Watch
	now  time.Time
	used Used
}

// pass has the script use so much of one processor, and write or not, for a while, and returns for how long it is said to rest then.
func (s *script) pass(within time.Duration, share float64, writes bool) (rests time.Duration) {
	for range int(within / LookEvery) {
		s.now = s.now.Add(LookEvery)
		s.used.Processor += time.Duration(share * float64(LookEvery))
		if writes {
			s.used.Writes++
		}
		rests = s.Look(s.now, s.used)
	}
	return rests
}

// train begins a script that works for a minute.
func train(t *testing.T) *script {
	t.Helper()
	s := &script{now: time.Unix(0, 0)}
	if rests := s.pass(time.Minute, 0.9, true); rests > 0 {
		t.Fatalf("it rests for %v as it works", rests)
	}
	return s
}

func TestAScriptThatNeitherUsesAProcessorNorWritesRestsAfterAMinute(t *testing.T) {
	s := train(t)
	if rests := s.pass(55*time.Second, 0.001, false); rests > 0 {
		t.Errorf("it is told after %v", rests)
	}
	if rests := s.pass(5*time.Second, 0.001, false); rests != time.Minute {
		t.Errorf("after a minute %v is told", rests)
	}
	if rests := s.pass(5*time.Second, 0.5, false); rests > 0 {
		t.Errorf("it works, and %v is told", rests)
	}
}

func TestAScriptThatComputesOrWritesDoesNotRest(t *testing.T) {
	for name, does := range map[string]struct {
		share  float64
		writes bool
	}{"it computes, and prints nothing": {0.02, false}, "it prints, and sleeps in between": {0, true}} {
		if rests := train(t).pass(time.Hour, does.share, does.writes); rests > 0 {
			t.Errorf("%s: it rests for %v", name, rests)
		}
	}
}

func TestARestThatEndedByItselfIsUsualUpToHalfAnHourOverAll(t *testing.T) {
	s := train(t)
	s.pass(5*time.Minute, 0, false)
	s.pass(time.Minute, 1, true)
	if early, late := s.pass(14*time.Minute, 0, false), s.pass(2*time.Minute, 0, false); early > 0 || late == 0 {
		t.Errorf("after a rest of five minutes the next is told as %v after 14, and as %v after 16", early, late)
	}
	s.pass(time.Minute, 1, true)
	s.Begin()
	if early, late := s.pass(29*time.Minute, 0, false), s.pass(2*time.Minute, 0, false); early > 0 || late == 0 {
		t.Errorf("after one of a quarter of an hour the next is told as %v after 29 min, and as %v after 31", early, late)
	}
}

func TestTimeInWhichTheAgentStoodStillIsNoRest(t *testing.T) {
	s := train(t)
	s.now = s.now.Add(time.Hour)
	if rests := s.pass(40*time.Second, 0, false); rests > 0 {
		t.Errorf("it is said to rest for %v", rests)
	}
}

func TestAScriptOfWhichAProcessEndedWorks(t *testing.T) {
	s := train(t)
	s.pass(50*time.Second, 0, false)
	s.used.Processor /= 2
	if rests := s.pass(50*time.Second, 0, false); rests > 0 {
		t.Errorf("it is said to rest for %v", rests)
	}
}
