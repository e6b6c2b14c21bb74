package protocol

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestWhatWasUndoneCountsNoMoreThoughTrainingComesByItsStepAgain(t *testing.T) {
	history := History{}.From("", 0).From("a", 40).From("b", 10).From("c", 70)
	for _, c := range []struct {
		plan string
		step uint64
		want bool
	}{
		{"a", 10, true}, {"a", 11, false}, {"b", 40, false}, {"b", 60, false}, {"c", 70, true}, {"c", 71, false},
		{"of another log", 5, false},
	} {
		if got := history.Counts(c.plan, c.step); got != c.want {
			t.Errorf("step %d of plan %s counts: %t", c.step, c.plan, got)
		}
	}
}

func TestASnapshotOfALogThatIsLostCountsUpToWhereThisOneBegan(t *testing.T) {
	history := History{}.From("", 30).From("a", 50)
	if !history.Counts("lost", 30) || history.Counts("lost", 31) {
		t.Errorf("%+v: expected what the lost log tells of to count up to step 30", history)
	}
}

// The twin tells one by one what each plan undid.
func TestASnapshotCountsIfNoLaterPlanWentOnFromBeforeIt(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 7))
	for range 200 {
		history, resumes, step := History{}, []uint64{}, uint64(0)
		for plan := range 1 + random.IntN(2*mostMade) {
			before := ""
			if plan > 0 {
				before = fmt.Sprint(plan - 1)
			}
			if step += random.Uint64N(9); random.IntN(10) == 0 {
				step = random.Uint64N(step + 1)
			}
			history, resumes = history.From(before, step), append(resumes, step)
		}
		for plan := max(0, len(resumes)-mostMade); plan < len(resumes)-1; plan++ {
			end := step
			for _, resume := range resumes[plan+1:] {
				end = min(end, resume)
			}
			if name := fmt.Sprint(plan); !history.Counts(name, end) || end >= resumes[plan] && history.Counts(name, end+1) {
				t.Fatalf("%+v, plans from steps %v: expected those of plan %d to count up to step %d", history, resumes, plan, end)
			}
		}
		if len(history.Plans) > mostMade {
			t.Fatalf("%d plans are remembered: expected at most %d", len(history.Plans), mostMade)
		}
	}
}
