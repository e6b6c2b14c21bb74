package detect_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/monitor/detect"
)

// delays lets time pass in which no step ends, and returns who is named, for whom, and after how many seconds.
func (c *crew) delays(seconds float64) string {
	var found []string
	for began := c.now; c.now < began+seconds; {
		c.beat()
		for _, delay := range c.hangs.Delays() {
			found = append(found, fmt.Sprintf("%s by %s after %.1f", delay.Node, delay.By, c.now-began))
		}
	}
	return strings.Join(found, ", ")
}

// Three steps of 0.4 s and 2 s are 3.2 s. Heartbeats come each half second.
func TestWhoeverOthersWaitForIsNamedWithinThreeStepsAndTwoSecondsWhateverItDoes(t *testing.T) {
	one := func(phase detect.Phase) map[string]detect.Phase { return allIn(phase, []string{"n2"}) }
	for name, test := range map[string]struct {
		phases, behind map[string]detect.Phase
		expected       string
	}{
		"before its first micro-batch":      {one(detect.Between), nil, "n2 by n1 after 3.0"},
		"in a micro-batch":                  {one(detect.Computing), nil, "n2 by n1 after 3.0"},
		"behind its commit":                 {nil, one(detect.Between), "n2 by n1 after 3.0"},
		"in its optimizer":                  {nil, one(detect.Computing), "n2 by n1 after 3.0"},
		"where its agent does not know":     {nil, one(detect.Unknown), "n2 by n1 after 3.0"},
		"nobody, where it waits as they do": {one(detect.Waiting), nil, ""},
		"several, each of them once a step": {allIn(detect.Between, []string{"n2", "n4"}), nil, "n2 by n1 after 3.0, n4 by n1 after 3.0"},
		"most, of whom a few are as good as": {
			allIn(detect.Between, append(names(20), "n2", "n4")), nil, "n2 by n1 after 3.0, n4 by n1 after 3.0, x10 by n1 after 3.0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrew(10, append(names(20), "n1", "n2", "n3", "n4")...)
			c.phases, c.behind = waiting("n1", "n3"), test.behind
			for node, phase := range test.phases {
				c.phases[node] = phase
			}
			if found := c.delays(60); !strings.HasPrefix(found, test.expected) || test.expected == "" && found != "" ||
				strings.Count(found, "by") > 8 {
				t.Errorf("expected %q, got %q", test.expected, found)
			}
		})
	}
}

func names(count int) (names []string) {
	for i := range count {
		names = append(names, fmt.Sprint("x", 10+i))
	}
	return names
}

func TestWhoIsNamedInAStepIsNamedInTheNextAgain(t *testing.T) {
	c := newCrew(10, "n1", "n2", "n3")
	for range 2 {
		c.phases = waiting("n1", "n3")
		c.phases["n2"] = detect.Between
		if found := c.delays(10); !strings.HasPrefix(found, "n2 by n1") || strings.Count(found, "by") != 1 {
			t.Errorf("expected n2 to be named once, got %q", found)
		}
		c.train(1)
	}
}

func TestWhoWaitsInTheFirstStepsOfAllPlansNamesNobody(t *testing.T) {
	c := newCrew(0, "n1", "n2", "n3")
	c.phases = waiting("n1", "n3")
	c.phases["n2"] = detect.Between
	if found := c.delays(300); found != "" {
		t.Errorf("nobody knows how long a step takes: %s", found)
	}
}

// Maps have no order, and with theirs two runs of one simulated seed differed.
func TestWhoIsAwaitedInTwoStepsIsNamedInTheEarlierOne(t *testing.T) {
	for range 20 {
		c := newCrew(10, "n1", "n2", "n3")
		c.phases = waiting("n1")
		c.behind = map[string]detect.Phase{"n2": detect.Between, "n3": detect.Waiting}
		if found := c.delays(4); found != "n2 by n3 after 3.0" {
			t.Fatalf("expected n2 by n3, got %q", found)
		}
	}
}
