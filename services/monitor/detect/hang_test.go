package detect_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/monitor/detect"
)

// crew is trainers in one plan, which beat every half second.
type crew struct {
	hangs      *detect.Hangs
	now        float64
	generation uint64
	step       uint64
	phases     map[string]detect.Phase
	behind     map[string]detect.Phase // of those who have not applied the sums of the last step
}

func waiting(names ...string) map[string]detect.Phase   { return allIn(detect.Waiting, names) }
func computing(names ...string) map[string]detect.Phase { return allIn(detect.Computing, names) }

func allIn(phase detect.Phase, names []string) map[string]detect.Phase {
	phases := map[string]detect.Phase{}
	for _, name := range names {
		phases[name] = phase
	}
	return phases
}

const stepSeconds = 0.4

// newCrew has trained so many steps under its plan.
func newCrew(steps int, names ...string) *crew {
	c := &crew{hangs: detect.NewHangs(), generation: 1, phases: map[string]detect.Phase{}}
	for _, name := range names {
		c.phases[name] = detect.Computing
	}
	c.train(steps)
	return c
}

func (c *crew) beat() {
	c.now += 0.5
	told := detect.Progress{Generation: c.generation, Step: c.step, StepSeconds: stepSeconds}
	for name, phase := range c.phases {
		told.Phase = phase
		c.hangs.Pulse(c.now, name, told)
	}
	told.Step--
	for name, phase := range c.behind {
		told.Phase = phase
		c.hangs.Pulse(c.now, name, told)
	}
}

func (c *crew) train(steps int) {
	c.beat()
	for range steps {
		c.step++
		c.beat()
	}
}

// pass lets time pass in which no step ends, and returns who hangs, and after how many seconds.
func (c *crew) pass(seconds float64) string {
	var found []string
	for began := c.now; c.now < began+seconds; {
		c.beat()
		if hang, hangs := c.hangs.Find(); hangs {
			found = append(found, fmt.Sprintf("%s after %.1f", hang.Node, c.now-began))
			delete(c.phases, hang.Node)
			delete(c.behind, hang.Node)
			c.hangs.Forget(hang.Node)
		}
	}
	return strings.Join(found, ", ")
}

func TestWhoeverComputesWhileOthersWaitForLongHangs(t *testing.T) {
	for name, test := range map[string]struct {
		computing []string
		waiting   []string
		steps     int
		expected  string
	}{
		"one of three":                         {[]string{"n2"}, []string{"n1", "n3"}, 10, "n2 after 3.0"},
		"one of two":                           {[]string{"n2"}, []string{"n1"}, 10, "n2 after 3.0"},
		"two of four":                          {[]string{"n2", "n3"}, []string{"n1", "n4"}, 10, "n2 after 3.0, n3 after 5.5"},
		"all wait, as a broken network has it": {nil, []string{"n1", "n2", "n3"}, 10, ""},
		"all compute, as a slow file has it":   {[]string{"n1", "n2", "n3"}, nil, 10, ""},
		"most compute":                         {[]string{"n1", "n2"}, []string{"n3"}, 10, ""},
		"in the first steps of a plan":         {[]string{"n2"}, []string{"n1", "n3"}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrew(test.steps, append(test.computing, test.waiting...)...)
			for _, node := range test.waiting {
				c.phases[node] = detect.Waiting
			}
			if found := c.pass(20); found != test.expected {
				t.Errorf("expected %q, got %q", test.expected, found)
			}
		})
	}
}

func TestWhoDoesNotApplyTheSumsOfAStepThatTheOthersMadeHangs(t *testing.T) {
	for name, test := range map[string]struct {
		steps    int
		phases   map[string]detect.Phase // in the step after that
		behind   map[string]detect.Phase
		expected string
	}{
		"one of three": {10, waiting("n1", "n3"), computing("n2"), "n2 after 33.0"},
		"two of four":  {10, waiting("n1", "n4"), computing("n2", "n3"), "n2 after 33.0, n3 after 65.5"},
		"in the fourth step of the plan, which may be longer": {4, waiting("n1", "n3"), computing("n2"), "n2 after 33.0"},
		"most, as a slow disk has it":                         {10, waiting("n3"), computing("n1", "n2"), ""},
		"who waits, for a snapshot say":                       {10, waiting("n1", "n3"), waiting("n2"), ""},
		"who tells nothing, as one that evaluates":            {10, waiting("n1", "n3"), map[string]detect.Phase{"n2": detect.Unknown}, ""},
		"nobody waits: they compute":                          {10, computing("n1", "n3"), computing("n2"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrew(test.steps, slices.Concat(slices.Collect(maps.Keys(test.phases)), slices.Collect(maps.Keys(test.behind)))...)
			c.step++
			c.phases, c.behind = test.phases, test.behind
			if found := c.pass(200); found != test.expected {
				t.Errorf("expected %q, got %q", test.expected, found)
			}
		})
	}
}

func TestWhoHasOnlyBegunToApplyItsSumsDoesNotHangHoweverLongTheOthersWaited(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	c.step++
	c.phases, c.behind = waiting("n1", "n3"), waiting("n2")
	c.pass(60)
	c.behind = computing("n2")
	if found := c.pass(30); found != "" {
		t.Errorf("%q", found)
	}
}

func TestWhatOthersWaitedForBeforeItComputedIsNoneOfItsHang(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	c.phases = map[string]detect.Phase{"n1": detect.Waiting, "n2": detect.Unknown, "n3": detect.Waiting}
	c.pass(600)
	c.phases["n2"] = detect.Computing
	for range 8 {
		c.beat()
		if hang, hangs := c.hangs.Find(); hangs && (hang.Node != "n2" || hang.WaitedSeconds > 3) {
			t.Errorf("%+v", hang)
		} else if hangs {
			return
		}
	}
	t.Error("it is not found")
}

func TestWhoComputesInAStepKeepsNobodyWaitingInTheStepBefore(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	c.step++
	c.phases, c.behind = computing("n2"), waiting("n1", "n3")
	if found := c.pass(200); found != "" {
		t.Errorf("%q", found)
	}
}

func TestWhoIsInAnotherPlanKeepsNobodyWaiting(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	delete(c.phases, "n2")
	c.phases["n1"], c.phases["n3"] = detect.Waiting, detect.Waiting
	for began := c.now; c.now < began+200; {
		c.beat()
		c.hangs.Pulse(c.now, "n2", detect.Progress{Generation: 2, Step: c.step - 1, StepSeconds: stepSeconds, Phase: detect.Computing})
		if hang, hangs := c.hangs.Find(); hangs {
			t.Fatalf("%+v", hang)
		}
	}
}

func TestOfThoseWhoWaitForOneInTwoStepsItIsSaidWhoWaitsLongest(t *testing.T) {
	for range 50 {
		c := newCrew(10, "a", "b", "m", "z1", "z2")
		c.phases = computing("z1", "z2")
		c.step++
		c.behind = map[string]detect.Phase{"a": detect.Computing, "b": detect.Waiting, "m": detect.Waiting}
		for range 20 {
			c.beat()
		}
		c.phases = waiting("z1", "z2")
		for range 80 {
			c.beat()
		}
		if hang, hangs := c.hangs.Find(); !hangs || hang.Node != "a" || hang.By != "b" {
			t.Fatalf("%+v", hang)
		}
	}
}

func TestWhoEvaluatesBetweenStepsDoesNotHang(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	c.phases = map[string]detect.Phase{"n1": detect.Unknown, "n2": detect.Waiting, "n3": detect.Waiting}
	if found := c.pass(600); found != "" {
		t.Errorf("%s", found)
	}
}

func TestAStepMayTakeHalfAMinuteLongerAfterASwitch(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	c.generation = 2
	c.phases["n1"], c.phases["n3"] = detect.Waiting, detect.Waiting
	if found := c.pass(600); found != "n2 after 31.5" {
		t.Errorf("%s", found)
	}
}

func TestEachPlanWhoseFirstStepsWereQuickHalvesWhatTheNextMayTakeLonger(t *testing.T) {
	for plans, expected := range map[int]string{2: "n2 after 16.5", 5: "n2 after 3.5", 20: "n2 after 3.0"} {
		c := newCrew(10, "n1", "n2", "n3")
		for range plans - 1 {
			c.generation++
			c.train(3)
		}
		c.generation++
		c.phases["n1"], c.phases["n3"] = detect.Waiting, detect.Waiting
		if found := c.pass(600); found != expected {
			t.Errorf("after %d plans: expected %q, got %q", plans, expected, found)
		}
	}
}

func TestWhoHasMadeNoStepYetMayTakeHalfAMinuteLonger(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	for range 20 {
		c.generation++
		c.train(3)
	}
	c.generation++
	c.phases["n1"], c.phases["n2"], c.phases["n3"] = detect.Waiting, detect.Waiting, detect.Waiting
	c.phases["n4"] = detect.Computing
	if found := c.pass(600); found != "n4 after 33.0" {
		t.Errorf("%s", found)
	}
}

func TestWhereNothingTellsHowLongTheFirstStepTakesNobodyIsAccused(t *testing.T) {
	c := newCrew(0, "n1", "n2", "n3")
	c.phases["n1"], c.phases["n3"] = detect.Waiting, detect.Waiting
	if found := c.pass(600); found != "" {
		t.Errorf("%s", found)
	}
}

// hang has n2 hang after some steps, and returns who was found, and after how many seconds.
func (c *crew) hang() string {
	c.phases = map[string]detect.Phase{"n1": detect.Computing, "n2": detect.Computing, "n3": detect.Computing}
	c.train(10)
	c.phases["n1"], c.phases["n3"] = detect.Waiting, detect.Waiting
	return c.pass(700)
}

func TestWhoWasAccusedBeforeHasTwiceTheTime(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	for _, expected := range []string{"n2 after 3.0", "n2 after 5.5"} {
		if found := c.hang(); found != expected {
			t.Errorf("expected %q, got %q", expected, found)
		}
	}
}

func TestWhoWasAccusedOftenHasTenMinutesAtMost(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	found := ""
	for range 12 {
		found = c.hang()
	}
	if found != "n2 after 601.0" {
		t.Errorf("%s", found)
	}
}

func TestAnAccusationCountsForADay(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	c.hang()
	for _, day := range []struct {
		after    float64
		expected string
	}{{40_000, "n2 after 5.5"}, {90_000, "n2 after 5.5"}, {200_000, "n2 after 3.0"}} {
		c.now += day.after
		if found := c.hang(); found != day.expected {
			t.Errorf("%v s later: expected %q, got %q", day.after, day.expected, found)
		}
	}
}

func TestWhatWasNotHeardAccusesNobody(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	c.phases["n1"], c.phases["n3"] = detect.Waiting, detect.Waiting
	c.beat()
	c.now += 60 // no heartbeat comes through
	if hang, found := c.hangs.Find(); found {
		t.Errorf("%+v", hang)
	}
}

// Heartbeats that wait while the monitor stands still are taken at once when it goes on, the oldest first.
func TestWhatWasHeardLateAccusesNobody(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	c.phases["n1"], c.phases["n3"] = detect.Waiting, detect.Waiting
	c.beat()
	c.now += 60
	for range 2 {
		c.beat()
		if hang, found := c.hangs.Find(); found {
			t.Errorf("%+v", hang)
		}
	}
}
