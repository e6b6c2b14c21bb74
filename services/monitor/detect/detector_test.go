package detect_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/services/monitor/detect"
)

// clock drives a detector: it ticks when told to, and the nodes named send heartbeats.
type clock struct {
	t        *testing.T
	detector *detect.Detector
	settings detect.Settings
	now      float64
	number   uint64
	verdicts []detect.Verdict
}

func watch(t *testing.T, nodes ...string) *clock {
	c := &clock{t: t, settings: detect.Defaults(), now: 1000}
	c.detector = detect.New(c.settings, detect.Memory{})
	for _, node := range nodes {
		c.detector.Watch(detect.Watched{Node: node, Incarnation: "a"})
	}
	c.verdicts = c.detector.Tick(c.now)
	return c
}

// pass lets time pass in ticks, with a heartbeat of each node named every half second. It stops early at a verdict
// of the state awaited and returns the seconds that passed.
func (c *clock) pass(seconds float64, awaited detect.State, pulsing ...string) float64 {
	start := c.now
	for tick := 0; c.now-start < seconds; tick++ {
		if tick%5 == 0 {
			c.number++
			for _, node := range pulsing {
				c.detector.Signal(c.now, detect.Signal{Node: node, Incarnation: "a", Number: c.number})
			}
		}
		c.now += c.settings.TickSeconds
		verdicts := c.detector.Tick(c.now)
		c.verdicts = append(c.verdicts, verdicts...)
		for _, verdict := range verdicts {
			if verdict.State == awaited && awaited != detect.Green {
				return c.now - start
			}
		}
	}
	return c.now - start
}

func (c *clock) expect(verdicts ...string) {
	c.t.Helper()
	got := []string{}
	for _, v := range c.verdicts {
		got = append(got, fmt.Sprintf("%s %s", v.Node, []string{"green", "suspected", "lost"}[v.State]))
	}
	c.verdicts = nil
	if fmt.Sprint(got) != fmt.Sprint(verdicts) {
		c.t.Errorf("expected %v, got %v", verdicts, got)
	}
}

func TestNodesThatSendHeartbeatsAreLeftAlone(t *testing.T) {
	c := watch(t, "n1", "n2")
	c.pass(60, detect.Green, "n1", "n2")
	c.expect()
}

func TestASilentNodeIsSuspectedAndThenLostInFourToFiveSeconds(t *testing.T) {
	c := watch(t, "n1", "n2", "n3")
	c.pass(10, detect.Green, "n1", "n2", "n3")
	c.pass(60, detect.Green, "n1", "n2")
	if len(c.verdicts) != 2 {
		t.Fatalf("expected one suspicion and one loss, got %v", c.verdicts)
	}
	suspected, lost := c.verdicts[0].SilentSeconds, c.verdicts[1].SilentSeconds
	if suspected < 1 || suspected > 2.5 || lost < 4 || lost > 5 {
		t.Errorf("suspected after %.1f s of silence, lost after %.1f s", suspected, lost)
	}
	c.expect("n3 suspected", "n3 lost")
}

func TestAHeartbeatClearsASuspicion(t *testing.T) {
	c := watch(t, "n1", "n2", "n3")
	c.pass(10, detect.Green, "n1", "n2", "n3")
	c.pass(20, detect.Suspected, "n1", "n2")
	if _, cleared := c.detector.Signal(c.now, detect.Signal{Node: "n3", Incarnation: "a", Number: 999}); !cleared {
		t.Error("expected the suspicion to be cleared")
	}
	if counted, cleared := c.detector.Signal(c.now, detect.Signal{Node: "n3", Incarnation: "a", Number: 999}); counted || cleared {
		t.Error("the same heartbeat again says nothing")
	}
}

func TestAnAnswerToAProbeDefersTheLossButClearsNothing(t *testing.T) {
	c := watch(t, "n1", "n2", "n3")
	c.pass(10, detect.Green, "n1", "n2", "n3")
	for range 10 {
		c.pass(1, detect.Green, "n1", "n2")
		c.detector.Answered(c.now, "n3")
	}
	c.pass(20, detect.Lost, "n1", "n2")
	c.expect("n3 suspected", "n3 lost")
}

func TestAResetAndNobodyAtTheHubAreProofTogetherAndNothingAlone(t *testing.T) {
	c := watch(t, "n1", "n2", "n3")
	c.pass(10, detect.Green, "n1", "n2", "n3")
	if _, lost := c.detector.Gone(c.now, "n3"); lost {
		t.Error("a connection to the hub that broke proves nothing")
	}
	c.detector.Reset(c.now, "n3")
	verdict, lost := c.detector.Gone(c.now+0.01, "n3")
	if !lost || verdict.State != detect.Lost || !verdict.Evidence {
		t.Errorf("expected n3 to be lost at once, got %+v", verdict)
	}
	c.detector.Reset(c.now, "n2")
	if _, lost := c.detector.Gone(c.now+2*c.settings.ResetSeconds, "n2"); lost {
		t.Error("an old reset proves nothing")
	}
	c.pass(20, detect.Lost, "n1", "n2")
	c.expect()
}

func TestWhenMostFallSilentAtOnceTheDetectorSuspectsItself(t *testing.T) {
	c := watch(t, "n1", "n2", "n3", "n4", "n5")
	all := []string{"n1", "n2", "n3", "n4", "n5"}
	c.pass(10, detect.Green, all...)
	c.pass(12, detect.Green) // the hub is away
	c.pass(60, detect.Green, all...)
	c.expect()
}

func TestSilenceOfMostIsBelievedInTheEnd(t *testing.T) {
	c := watch(t, "n1", "n2", "n3", "n4")
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4")
	took := c.pass(120, detect.Lost, "n1")
	c.expect("n2 suspected", "n3 suspected", "n4 suspected", "n2 lost", "n3 lost", "n4 lost")
	if took < c.settings.CorrelatedSeconds || took > c.settings.CorrelatedSeconds+5 {
		t.Errorf("took %.1f s", took)
	}
}

func TestHalfOfTheNodesMayFailAtOnce(t *testing.T) {
	c := watch(t, "n1", "n2", "n3", "n4", "n5", "n6")
	c.pass(10, detect.Green, "n1", "n2", "n3", "n4", "n5", "n6")
	if took := c.pass(60, detect.Lost, "n1", "n2", "n3"); took > 5 {
		t.Errorf("three of six were lost after %.1f s", took)
	}
}

func TestTheDetectorsOwnLatenessIsNotHeldAgainstANode(t *testing.T) {
	c := watch(t, "n1", "n2")
	c.pass(10, detect.Green, "n1", "n2")
	c.now += 30 // the process was stopped; heartbeats wait in a queue
	c.verdicts = append(c.verdicts, c.detector.Tick(c.now)...)
	c.pass(10, detect.Green, "n1", "n2")
	c.expect()
	c.pass(20, detect.Lost, "n1")
	c.expect("n2 suspected", "n2 lost") // but silence after it is
}

func TestHeartbeatsOfAnotherIncarnationSayNothing(t *testing.T) {
	c := watch(t, "n1", "n2")
	c.detector.Watch(detect.Watched{Node: "n2", Incarnation: "b"})
	c.pass(20, detect.Lost, "n1", "n2") // n2's heartbeats are of incarnation a
	c.expect("n2 suspected", "n2 lost")
}

func TestANodeThatIsNotWatchedIsIgnored(t *testing.T) {
	c := watch(t, "n1")
	if counted, _ := c.detector.Signal(c.now, detect.Signal{Node: "n9", Incarnation: "a", Number: 1}); counted {
		t.Error("n9 never joined")
	}
	c.detector.Reset(c.now, "n9")
	if _, lost := c.detector.Gone(c.now, "n9"); lost {
		t.Error("n9 cannot be lost")
	}
	c.detector.Forget("n1")
	c.pass(20, detect.Lost)
	c.expect()
}

func TestANodeWatchedAnewHasAFullTimeoutOfGrace(t *testing.T) {
	c := watch(t, "n1")
	c.now += 1e6
	c.detector.Tick(c.now)
	c.detector.Watch(detect.Watched{Node: "n2", Incarnation: "a"})
	if took := c.pass(20, detect.Lost, "n1"); took < 4 {
		t.Errorf("n2 was lost after %.1f s", took)
	}
}

// A node whose heartbeats come late at random is never lost while no silence reaches the least timeout, and one that
// stops is lost once, within the greatest.
func TestWhateverTheJitterSilenceIsFoundAndLifeIsNot(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := watch(t, "n1", "n2")
		longest := c.settings.FloorSeconds - 2*c.settings.TickSeconds
		due, stops := [2]float64{c.now, c.now}, c.now+20+random.Float64()*20
		var lostAt float64
		for c.now < stops+2*c.settings.CapSeconds {
			c.now += c.settings.TickSeconds * (0.5 + random.Float64())
			for i, node := range []string{"n1", "n2"} {
				if c.now >= due[i] && (i == 0 || c.now < stops) {
					c.number++
					c.detector.Signal(c.now, detect.Signal{Node: node, Incarnation: "a", Number: c.number})
					due[i] = c.now + random.ExpFloat64()*0.5
					due[i] = min(due[i], c.now+longest-2*c.settings.TickSeconds)
				}
			}
			for _, verdict := range c.detector.Tick(c.now) {
				if verdict.State == detect.Lost && (verdict.Node != "n2" || c.now < stops || lostAt > 0) {
					t.Fatalf("seed %d: %+v at %.1f, n2 stops at %.1f", seed, verdict, c.now, stops)
				}
				if verdict.State == detect.Lost {
					lostAt = c.now
				}
			}
		}
		if lostAt == 0 || lostAt > stops+c.settings.CapSeconds+3*c.settings.TickSeconds {
			t.Errorf("seed %d: n2 stopped at %.1f, lost at %.1f", seed, stops, lostAt)
		}
	}
}

// The timeout is that of a twin that keeps every interval and computes mean and deviation of the last 64.
func TestTheTimeoutFollowsTheLastIntervals(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := watch(t, "n1")
		var intervals []float64
		c.detector.Signal(c.now, detect.Signal{Node: "n1", Incarnation: "a", Number: 1})
		for number := uint64(2); number < 150; number++ {
			interval := random.Float64() * 1.4
			intervals = append(intervals, interval)
			c.now += interval
			c.detector.Tick(c.now)
			c.detector.Signal(c.now, detect.Signal{Node: "n1", Incarnation: "a", Number: number})
		}
		last := intervals[len(intervals)-64:]
		sum, squares := 0.0, 0.0
		for _, interval := range last {
			sum, squares = sum+interval, squares+interval*interval
		}
		mean := sum / 64
		sigma := math.Sqrt(squares/64 - mean*mean)
		want := mean + c.settings.PauseSeconds + c.settings.Sigmas*sigma
		took := c.pass(20, detect.Lost)
		if math.Abs(took-want) > 2*c.settings.TickSeconds {
			t.Errorf("seed %d: lost after %.2f s, expected %.2f s", seed, took, want)
		}
	}
}

func TestALinkIsLostWhenAReportIsConfirmed(t *testing.T) {
	for _, test := range []struct {
		name    string
		reports detect.Reports
		outcome detect.Outcome
		broken  bool
	}{
		{"nobody complains, a probe fails", detect.Reports{}, detect.Failed, false},
		{"one end complains, the probe fails", detect.Reports{"a": 99}, detect.Failed, true},
		{"one end complains, no answer", detect.Reports{"a": 99}, detect.Silent, false},
		{"both ends complain, no answer", detect.Reports{"a": 99, "b": 97}, detect.Silent, true},
		{"both ends complain, the probe works", detect.Reports{"a": 99, "b": 97}, detect.Worked, false},
		{"a complaint of long ago, the probe fails", detect.Reports{"a": 80}, detect.Failed, false},
		{"one complaint of two is old, no answer", detect.Reports{"a": 99, "b": 80}, detect.Silent, false},
	} {
		if got := test.reports.Broken(100, 10, test.outcome); got != test.broken {
			t.Errorf("%s: expected broken %v, got %v", test.name, test.broken, got)
		}
	}
}

func TestALinkCarriesWhatATransferProvedUntilProbesGetSlower(t *testing.T) {
	const enough = 100 << 20
	proof, higher := detect.Proof{}.Prove(enough, 100, 20)
	if !higher {
		t.Fatal("five times what was probed is no proof")
	}
	for _, test := range []struct{ probed, want float64 }{{20, 100}, {10, 50}, {25, 100}, {99, 100}, {130, 130}} {
		if got := proof.Bandwidth(test.probed); got != test.want {
			t.Errorf("a probe of %v after 100 were proved at 20: %v, expected %v", test.probed, got, test.want)
		}
	}
	if got := (detect.Proof{}).Bandwidth(20); got != 20 {
		t.Errorf("nothing was proved, but 20 became %v", got)
	}
}

func TestWhatIsSlowOrShortOrOfAnUnknownLinkProvesNothing(t *testing.T) {
	const enough = 100 << 20
	proof, _ := detect.Proof{}.Prove(enough, 100, 20)
	for _, test := range []struct {
		bytes        int64
		rate, probed float64
	}{{enough, 90, 20}, {enough, 110, 120}, {1 << 20, 500, 20}, {enough, 500, 0}} {
		if after, higher := proof.Prove(test.bytes, test.rate, test.probed); higher || after != proof {
			t.Errorf("%+v: proof became %+v", test, after)
		}
	}
	if _, higher := proof.Prove(enough, 60, 10); !higher {
		t.Error("after probes got half as fast, 60 is more than the 50 that are left of the proof")
	}
}

func TestTheFailureRateStartsAtThePriorAndFollowsWhatIsSeen(t *testing.T) {
	rate := detect.Rate{PriorSeconds: 1000}
	if got := rate.PerNodeSecond(); got != 1e-3 {
		t.Errorf("before anything is seen: %v", got)
	}
	rate.Failures, rate.Seconds = 99, 9000
	if got := rate.PerNodeSecond(); got != 1e-2 {
		t.Errorf("after 99 failures in 9000 s: %v", got)
	}
}
