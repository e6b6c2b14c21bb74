package fence

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestANodeThatTheHubDoesNotHearIsCutOffOnceAndAgainAfterItWasHeard(t *testing.T) {
	began := time.Unix(0, 0)
	h := Hearing{Last: began}
	cuts := []int{}
	for second := 1; second <= 100; second++ {
		hears := second == 5 || second == 50
		if h.CutOff(began.Add(time.Duration(second)*time.Second), hears, UnheardFor) {
			cuts = append(cuts, second)
		}
	}
	if len(cuts) != 2 || cuts[0] != 25 || cuts[1] != 70 {
		t.Errorf("it is cut off at %v: expected 20 s after each time that it was heard", cuts)
	}
}

// The monitor gives a node up that others reach after 60 s of silence.
func TestAScriptThatIsCutOffHasEndedBeforeTheOthersMayStart(t *testing.T) {
	if Ended >= 60*time.Second {
		t.Errorf("it may run for %v", Ended)
	}
}

func TestThoseWithoutAPlaceAreAbsentUntilTheirScriptsHaveEndedOrTheyAreBack(t *testing.T) {
	now := time.Unix(0, 0)
	after := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	crew := func(at time.Time, nodes ...string) (crew []Absent) {
		for _, node := range nodes {
			crew = append(crew, Absent{Node: node, Until: at.Add(Ended)})
		}
		return crew
	}
	named := func(nodes ...string) func(string) bool {
		return func(node string) bool { return slices.Contains(nodes, node) }
	}
	expect := func(absent []Absent, expected string) {
		t.Helper()
		got := ""
		for _, one := range absent {
			got += fmt.Sprintf("%s %.0f ", one.Node, one.Until.Sub(now).Seconds())
		}
		if got != expected {
			t.Errorf("absent are %q, expected %q", got, expected)
		}
	}
	first := Absentees(nil, crew(now, "n1", "n2", "n3"), named("n2", "n3"), now)
	expect(first, "n1 52 ")
	second := Absentees(first, crew(after(10), "n2", "n3"), named("n3"), after(10))
	expect(second, "n1 52 n2 62 ")
	expect(Absentees(second, crew(after(20), "n3"), named("n2", "n3"), after(20)), "n1 52 ")
	expect(Absentees(second, crew(after(55), "n3"), named("n3"), after(55)), "n2 62 ")
	expect(Absentees(nil, crew(now, "n1", "n2"), named("n1", "n2", "n3"), now), "")
}
