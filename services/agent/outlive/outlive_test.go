package outlive

import (
	"fmt"
	"testing"
)

// life is a script of which each line changes one thing, as reknit.py does it, and the step at which the state is whole
// after each; -1 where it is not.
var life = []struct {
	does   string
	change func(*Script)
	whole  int
}{
	{"it has joined", func(*Script) {}, 7},
	{"it is told to train", func(s *Script) { s.Stepping, s.Index = true, 7 }, 7},
	{"it is in its step", func(s *Script) { s.Phase = InStep }, 7},
	{"it begins to apply", func(s *Script) { s.Phase = Applying }, -1},
	{"it has applied, and may evaluate", func(s *Script) { s.Completed = 8 }, 8},
	{"it copies what it changed behind the update", func(s *Script) { s.Phase = Changing }, -1},
	{"it has copied that", func(s *Script) { s.Phase = Applying }, 8},
	{"it begins to report", func(s *Script) { s.Phase = Between }, 8},
	{"it has reported", func(s *Script) { s.Stepping = false }, 8},
	{"it is told to train again", func(s *Script) { s.Stepping, s.Index = true, 8 }, 8},
	{"it gives the step up", func(s *Script) { s.Phase, s.Stepping = Between, false }, 8},
	{"it is told to make it of its sums", func(s *Script) { s.Ordered = true }, -1},
	{"it counts that step, which its agent has not heard", func(s *Script) { s.Completed = 9 }, -1},
	{"it has reported on that", func(s *Script) { s.Ordered = false }, 9},
}

func TestAStateIsWholeAtEachPointOfAScriptsLifeButDuringAnUpdate(t *testing.T) {
	script := Script{Completed: 7}
	for _, point := range life {
		point.change(&script)
		expectWhole(t, point.does, script, point.whole)
	}
}

func expectWhole(t *testing.T, does string, script Script, expected int) {
	t.Helper()
	got := -1
	if step, whole := script.Whole(); whole {
		got = int(step)
	}
	if got != expected {
		t.Errorf("%s: expected %d, got %d of %+v", does, expected, got, script)
	}
}

func TestWhatAScriptLeftIsNeededUntilAPlanDoesWithoutItUnderWhichTheClusterIsNotHeld(t *testing.T) {
	for _, test := range []struct {
		newest        uint64
		holds, isHeld bool
		needed        bool
		because       string
	}{
		{0, false, false, true, "no plan is known"},
		{3, false, false, true, "no newer plan is committed"},
		{4, true, false, true, "the newest plan has the node hold something"},
		{4, false, true, true, "all may have died under the newest plan"},
		{4, false, false, false, "the newest plan does without it, and goes on"},
	} {
		if needed := Needed(3, test.newest, test.holds, test.isHeld); needed != test.needed {
			t.Errorf("%+v: got %v", test, needed)
		}
	}
}

// A page that says what no script does is nobody's state.
func TestAPageThatCannotBeIsNotWhole(t *testing.T) {
	for _, script := range []Script{
		{Stepping: true, Index: 7, Completed: 6, Phase: Applying},
		{Stepping: true, Index: 7, Completed: 9, Phase: InStep},
		{Completed: 7, Phase: Applying},
		{Stepping: true, Index: 7, Completed: 7, Phase: 99},
		{Stepping: true, Index: 7, Completed: 8, Phase: 99},
		{Completed: 7, Phase: 99},
	} {
		expectWhole(t, fmt.Sprintf("%+v", script), script, -1)
	}
}
