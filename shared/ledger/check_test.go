package ledger

import (
	"strings"
	"testing"
)

// A batch of 4 on two trainers for two steps, of 6 on three from step 2 on; step 3 is undone, and two trainers go on.
func story() (plans []Plan, entries []Entry) {
	plans = []Plan{{1, 0, 0, 4, 0}, {2, 2, 8, 6, 0}, {3, 3, 14, 4, 0}}
	entries = []Entry{
		{1, 0, 0, 2}, {1, 0, 2, 4}, {1, 1, 6, 8}, {1, 1, 4, 6},
		{2, 2, 8, 10}, {2, 2, 10, 12}, {2, 2, 12, 14}, {2, 3, 14, 16}, // somebody had begun
		{3, 3, 14, 16}, {3, 3, 16, 18},
	}
	return plans, entries
}

func TestWhatIsUndoneAndTrainedAgainIsTrainedOnce(t *testing.T) {
	plans, entries := story()
	if err := Check(plans, entries, 4); err != nil {
		t.Error(err)
	}
	if err := Check(nil, nil, 0); err != nil {
		t.Error("before the first plan:", err)
	}
}

func TestEachFaultIsFound(t *testing.T) {
	for want, plant := range map[string]func([]Plan, []Entry) ([]Plan, []Entry){
		"step 1, generation 1: samples 6 to 8 were skipped": func(p []Plan, e []Entry) ([]Plan, []Entry) {
			return p, append(e[:2:2], e[3:]...)
		},
		"step 2, generation 2: samples 10 to 12 were skipped": func(p []Plan, e []Entry) ([]Plan, []Entry) {
			e[5].First = 12
			e[5].End = 14
			return p, append(e[:6:6], e[7:]...)
		},
		"step 0, generation 1: samples 2 to 4 were trained twice": func(p []Plan, e []Entry) ([]Plan, []Entry) {
			return p, append(e, Entry{1, 0, 2, 4})
		},
		"generation 3: samples 18 to 20 were trained a step early": func(p []Plan, e []Entry) ([]Plan, []Entry) {
			e[9].End = 20
			return p, e
		},
		"step 3, generation 3: samples 14 to 18 were skipped": func(p []Plan, e []Entry) ([]Plan, []Entry) {
			return p, e[:8] // it counts under the newer plan only
		},
		"generation 2 goes on at sample 12 from step 2: expected 8": func(p []Plan, e []Entry) ([]Plan, []Entry) {
			p[1].Consumed = 12
			return p, e
		},
		"step 0: no plan": func(p []Plan, e []Entry) ([]Plan, []Entry) { return p[1:], e },
		"4 steps without": func(p []Plan, e []Entry) ([]Plan, []Entry) { return nil, e },
	} {
		plans, entries := story()
		if err := check(plant(plans, entries)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, expected %q", err, want)
		}
	}
}

// Step 2 is held, its samples are passed over, and a node fails before it is made; training goes back to step 1, and they are passed over
// again; the last plan goes on where they end.
func TestSamplesThatAPlanPassesOverAreInNoStep(t *testing.T) {
	plans := []Plan{{1, 0, 0, 4, 0}, {2, 2, 8, 4, 0}, {3, 2, 12, 4, 4}, {4, 2, 12, 4, 0},
		{5, 1, 4, 4, 0}, {6, 2, 8, 4, 0}, {7, 2, 12, 4, 4}, {8, 3, 16, 4, 0}}
	entries := []Entry{{1, 0, 0, 4}, {1, 1, 4, 8}, {2, 2, 8, 10}, {4, 2, 12, 16}, {5, 1, 4, 8}, {7, 2, 12, 16}, {8, 3, 16, 20}}
	if err := Check(plans, entries, 4); err != nil {
		t.Error(err)
	}
	plans[6].Skipped = 0
	if err := Check(plans, entries, 4); err == nil {
		t.Error("samples are passed over, and no plan says so")
	}
}

func check(plans []Plan, entries []Entry) error { return Check(plans, entries, 4) }
