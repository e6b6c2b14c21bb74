package snapshots

import (
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/agent/machine"
)

// It is one process that was frozen and given up: its successor has the folder and the bucket, and trains under a plan of which the one
// that thaws knows nothing. Seeds 774 (disk) and 476 (bucket) of the simulation.
func TestAProcessThatThawsRemovesNothingThatItsSuccessorWrote(t *testing.T) {
	for _, tier := range []string{machine.DiskTier, machine.RemoteTier} {
		t.Run(tier, func(t *testing.T) {
			s := newScene(t)
			first := s.open("a")
			s.captures(first, tier, 8, 0, 3)
			s.captures(first, tier, 16, 0, 3)
			s.tells(8)
			s.tells(16)
			frozen, told := s.plan, s.told
			s.goesBack(16)
			successor := s.open("a")
			s.captures(successor, tier, 24, 0, 3)
			s.tells(24)

			later := s.plan
			s.plan, s.told = frozen, told
			s.captures(first, tier, 20, 0, 3) // it thaws: to it step 24 is of a history that was left
			s.plan = later
			if list := s.lists(successor); !slices.Contains(list, "24: 0-3") {
				t.Errorf("after the first process wrote on, its successor reads %q: expected step 24, which is complete, to stay", list)
			}
			s.tells(24)
			s.captures(successor, tier, 32, 0, 3)
			if list := s.lists(successor); slices.Contains(list, "20: 0-3") {
				t.Errorf("the successor keeps what the first wrote of a history that was left: %q", list)
			}
		})
	}
}

func TestOfMarksOfPlansOneStays(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	for step := uint64(8); step <= 80; step += 8 {
		s.goesBack(step)
		s.captures(a, machine.DiskTier, step+1, 0, 3)
		s.tells(step + 1)
	}
	marks := slices.DeleteFunc(s.files(s.own["a"]), func(file string) bool { return !strings.Contains(file, "/"+beganWith) })
	if len(marks) != 1 {
		t.Errorf("after ten plans these marks lie there: %q; expected the newest alone", marks)
	}
}
