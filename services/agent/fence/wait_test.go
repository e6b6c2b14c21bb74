package fence

import (
	"slices"
	"testing"
)

func waitFor(nodes ...string) *Wait {
	var s Scripts
	s.adopt(false, start, append(nodes, "self")...)
	s.adopt(false, start, "self")
	return s.Wait()
}

// round has all whom the wait asks answer so, and returns them.
func (w *Wait) round(answer func(node string) Answer) (asked []string) {
	for _, one := range w.Round(start) {
		asked = append(asked, one.Node)
		w.Hear(one.Node, answer(one.Node))
	}
	return asked
}

func TestANodeIsGoneOnceItWasSilentInThreeRoundsInARow(t *testing.T) {
	w := waitFor("n1")
	for i, answer := range []Answer{Silent, Silent, Answers, Silent, Silent, Silent} {
		if w.Over(start) {
			t.Fatalf("over before round %d", i+1)
		}
		w.round(func(string) Answer { return answer })
	}
	if !w.Over(start) {
		t.Error("it is waited for still")
	}
}

func TestWhereNobodyListensNobodyIsWaitedFor(t *testing.T) {
	w := waitFor("n1", "n2")
	w.round(func(string) Answer { return Refuses })
	if !w.Over(start) {
		t.Error("somebody is waited for")
	}
}

func TestNobodyIsWaitedForWhoseScriptHasEndedForCertain(t *testing.T) {
	w := waitFor("n1")
	w.round(func(string) Answer { return Answers })
	if w.Over(start) || !w.Over(start.Add(Ended)) || len(w.Round(start.Add(Ended))) > 0 {
		t.Errorf("over %t at first, %t in the end; asks %v", w.Over(start), w.Over(start.Add(Ended)), w.Round(start.Add(Ended)))
	}
}

func TestTheNextIsAskedInTheSteadOfOneThatAnswersNoMore(t *testing.T) {
	w := waitFor("n1", "n2", "n3", "n4", "n5")
	all := func(string) Answer { return Answers }
	if first := w.round(all); len(first) != 5 {
		t.Errorf("asked at first were %v, expected all", first)
	}
	w.round(func(node string) Answer {
		if node == "n2" {
			return Refuses
		}
		return Answers
	})
	asked := w.round(func(node string) Answer {
		if node == "n2" {
			return Refuses
		}
		return Answers
	})
	if !slices.Equal(asked, []string{"n1", "n2", "n3", "n4"}) {
		t.Errorf("asked are %v, expected n4 in the stead of n2, which is asked still", asked)
	}
	if len(w.Answering(start)) != 4 || w.Over(start) {
		t.Errorf("answering are %v, expected all but n2", w.Answering(start))
	}
}
