package detect_test

import (
	"fmt"
	"testing"

	"github.com/reknit/reknit/services/monitor/detect"
)

// silence has n3 fall silent, with witnesses that find this each second, until it is lost or so much time has passed.
func (c *clock) silence(most float64, found ...detect.Finding) float64 {
	start := c.now
	for c.now-start < most {
		if c.pass(min(1, most-(c.now-start)), detect.Lost, "n1", "n2", "n4"); c.detector.State("n3") == detect.Lost {
			break
		}
		for i, finding := range found {
			c.detector.Found(c.now, "n3", []string{"n1", "n2"}[i], finding)
		}
	}
	return c.now - start
}

// stall has n3 stall for so long, and beat again.
func (c *clock) stall(seconds float64) {
	c.silence(seconds, detect.Stalled)
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4")
}

func newCluster(t *testing.T) *clock {
	c := watch(t, "n1", "n2", "n3", "n4")
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4")
	return c
}

func TestASilentNodeIsWaitedForAsItsWitnessesFindIt(t *testing.T) {
	for _, test := range []struct {
		name        string
		stalls      int     // that were over by themselves before
		seconds     float64 // that each took
		found       []detect.Finding
		least, most float64
	}{
		{"nobody was asked", 0, 0, nil, 3.8, 5},
		{"no connection comes about", 4, 2.5, []detect.Finding{detect.Unreachable, detect.Unreachable}, 3.8, 5},
		{"it is stalled, and none ever was", 0, 0, []detect.Finding{detect.Stalled}, 3.8, 5},
		{"it is stalled, and one went on after 3.5 s", 1, 3.5, []detect.Finding{detect.Stalled}, 5, 6.5},
		{"it is stalled, and four went on after 2.5 s", 4, 2.5, []detect.Finding{detect.Stalled}, 7, 10},
		{"it is stalled, and nine went on after 3.5 s", 9, 3.5, []detect.Finding{detect.Stalled}, 10, 13},
		{"the word of life counts", 4, 3.5, []detect.Finding{detect.Stalled, detect.Unreachable}, 10, 13},
		{"it answers others", 0, 0, []detect.Finding{detect.Reached, detect.Stalled}, 59, 62},
	} {
		c := newCluster(t)
		for range test.stalls {
			c.stall(test.seconds)
		}
		if took := c.silence(100, test.found...); took < test.least || took > test.most {
			t.Errorf("%s: lost after %.1f s, expected %v to %v", test.name, took, test.least, test.most)
		}
	}
}

// Its host was reached in the first seconds of its silence, and died then.
func TestWhatAWitnessFoundCountsForSecondsOnly(t *testing.T) {
	c := newCluster(t)
	start := c.now
	c.silence(3, detect.Reached)
	if c.silence(100); c.detector.State("n3") != detect.Lost || c.now-start > 3+detect.FreshSeconds+3 {
		t.Errorf("%v after %.1f s of silence, expected lost %d s after the last finding", c.detector.State("n3"), c.now-start, detect.FreshSeconds)
	}
}

func TestWhoReturnsFromAStallThatItWasGivenUpForTeachesPatience(t *testing.T) {
	c := newCluster(t)
	if took := c.silence(100, detect.Stalled); took > 5 {
		t.Fatalf("lost after %.1f s", took)
	}
	c.pass(5, detect.Green, "n1", "n2", "n3", "n4") // n3 beats, after some ten seconds
	c.detector.Watch(detect.Watched{Node: "n3", Incarnation: "a", Number: c.number})
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4")
	if took := c.silence(100, detect.Stalled); took < 6 || took > 9.5 {
		t.Errorf("it was back after some five seconds, and is lost after %.1f s", took)
	}
}

// Where lost hosts are replaced by others, thousands never return within weeks.
func TestHostsThatNeverReturnKeepNobodyFromTeachingPatience(t *testing.T) {
	c := newCluster(t)
	for host := range 4096 {
		name := fmt.Sprint("host", host)
		c.detector.Watch(detect.Watched{Node: name, Incarnation: "a"})
		c.pass(10, detect.Suspected, "n1", "n2", "n3", "n4")
		c.detector.Found(c.now, name, "n1", detect.Stalled)
		c.pass(10, detect.Lost, "n1", "n2", "n3", "n4")
	}
	c.silence(100, detect.Stalled)
	c.pass(5, detect.Green, "n1", "n2", "n3", "n4") // n3 beats, after some ten seconds
	c.detector.Watch(detect.Watched{Node: "n3", Incarnation: "a", Number: c.number})
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4")
	if took := c.silence(100, detect.Stalled); took < 6 {
		t.Errorf("n3 was back after some five seconds, and is lost after %.1f s", took)
	}
}

func TestNoStallTeachesMorePatienceThanIsSet(t *testing.T) {
	c := newCluster(t)
	for _, seconds := range []float64{3.5, 5, 9.5, 20} {
		c.stall(seconds)
	}
	if took := c.silence(100, detect.Stalled); took < c.settings.StalledSeconds-1 || took > c.settings.StalledSeconds+1 {
		t.Errorf("lost after %.1f s", took)
	}
}

func TestAStallOfLongAgoCountsForLess(t *testing.T) {
	c := newCluster(t)
	for range 4 {
		c.stall(3.5)
	}
	c.now += 43200 // half of their half-life: they count for 0.71
	c.detector.Tick(c.now)
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4")
	if took := c.silence(100, detect.Stalled); took < 5.6 || took > 7.2 {
		t.Errorf("lost after %.1f s", took)
	}
}

// One of many answers says that a node stalls, which others reach, but the hub does not.
func TestACutFromTheHubTeachesNoPatience(t *testing.T) {
	for _, found := range [][]detect.Finding{{detect.Reached, detect.Stalled}, {detect.Stalled, detect.Reached}} {
		c := newCluster(t)
		c.silence(20, found...)
		c.pass(10, detect.Green, "n1", "n2", "n3", "n4")
		if took := c.silence(100, detect.Stalled); took > 5 {
			t.Errorf("found %v: lost after %.1f s", found, took)
		}
	}
}

func TestAWitnessThatReachesAProcessBeforeItBeatsAgainHidesNoStall(t *testing.T) {
	c := newCluster(t)
	c.silence(3.5, detect.Stalled)
	c.detector.Found(c.now, "n3", "n1", detect.Reached)
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4")
	if took := c.silence(100, detect.Stalled); took < 5 || took > 6.5 {
		t.Errorf("lost after %.1f s", took)
	}
}

func TestAStallForWhichNoPatienceSufficesTeachesNone(t *testing.T) {
	c := newCluster(t)
	c.silence(100, detect.Stalled)
	c.pass(60, detect.Green, "n1", "n2", "n4")
	c.pass(5, detect.Green, "n1", "n2", "n3", "n4")
	c.detector.Watch(detect.Watched{Node: "n3", Incarnation: "a", Number: c.number})
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4")
	if took := c.silence(100, detect.Stalled); took > 5 {
		t.Errorf("lost after %.1f s", took)
	}
}
