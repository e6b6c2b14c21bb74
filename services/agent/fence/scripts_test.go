package fence

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// adopt takes up a plan of some nodes.
func (s *Scripts) adopt(abandoned bool, now time.Time, nodes ...string) (anew bool) {
	var crew []Script
	for _, node := range nodes {
		crew = append(crew, Script{Node: node, Incarnation: node + "-1"})
	}
	return s.Adopt(crew, func(node string) bool { return slices.Contains(nodes, node) }, abandoned, now)
}

var start = time.Unix(0, 0)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// expectAbsent expects nodes, and after how many seconds their scripts have ended.
func expectAbsent(t *testing.T, s *Scripts, expected string) {
	t.Helper()
	got := ""
	for _, one := range s.absent {
		got += fmt.Sprintf("%s %.0f ", one.Node, one.Until.Sub(start).Seconds())
	}
	if got != expected {
		t.Errorf("absent are %q, expected %q", got, expected)
	}
}

func TestThoseWithoutAPlaceAreAbsentUntilTheirScriptsHaveEndedOrTheyAreBack(t *testing.T) {
	var s Scripts
	s.adopt(false, after(0), "n1", "n2", "n3")
	expectAbsent(t, &s, "")
	s.adopt(false, after(0), "n2", "n3")
	expectAbsent(t, &s, "n1 52 ")
	s.adopt(false, after(10), "n3")
	expectAbsent(t, &s, "n1 52 n2 62 ")
	s.adopt(false, after(20), "n2", "n3")
	expectAbsent(t, &s, "n1 52 ")
	s.adopt(false, after(30), "n1", "n2", "n3")
	expectAbsent(t, &s, "")
	s.adopt(false, after(40), "n3")
	s.adopt(false, after(93), "n2", "n3")
	expectAbsent(t, &s, "")
}

// It may be given up before it hears of the plan that has no place for it.
func TestOneThatAPlanNamesIsWaitedForUnderTheNextThatDoesNot(t *testing.T) {
	var s Scripts
	all, two, one := []Script{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}}, []Script{{Node: "n1"}, {Node: "n3"}}, []Script{{Node: "n1"}}
	isNamed := func(string) bool { return true }
	s.Adopt(all, isNamed, false, after(0))
	s.Adopt(two, isNamed, false, after(10))
	if wait := s.Wait(); !wait.Over(after(10)) {
		t.Error("a member is waited for")
	}
	s.Adopt(one, func(node string) bool { return node == "n1" }, false, after(20))
	expectAbsent(t, &s, "n2 62 n3 72 ")
	if wait := s.Wait(); len(wait.Round(after(20))) != 2 {
		t.Errorf("asks %v, expected n2 and n3", wait.Round(after(20)))
	}
}

func TestScriptsRunOnWhereNoStepsWereGivenUpAndTheCrewIsTheSame(t *testing.T) {
	var s Scripts
	for i, c := range []struct {
		nodes               []string
		abandoned, expected bool
	}{
		{[]string{"n1", "n2"}, false, true},
		{[]string{"n1", "n2"}, false, false},
		{[]string{"n1", "n2"}, true, true},
		{[]string{"n1"}, false, true},
	} {
		if anew := s.adopt(c.abandoned, start, c.nodes...); anew != c.expected {
			t.Errorf("plan %d: start anew %t, expected %t", i+1, anew, c.expected)
		}
	}
}
