package main

import (
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/simulation/world"
)

func TestADayOfFailuresLosesNobodyWhoLivesAndFillsNoStore(t *testing.T) {
	c := play(t.Context(), 6, 1, day, 9, io.Discard)
	for _, k := range kinds {
		if c.counts[k.name] == 0 {
			t.Errorf("nothing %s: draw another seed", k.name)
		}
		if lost := c.lost[k.name]; lost != c.counts[k.name] && k.name != "leaves" {
			t.Errorf("%s: %d, and %d of them were said lost", k.name, c.counts[k.name], lost)
		}
	}
	for _, fault := range append(c.unsound(), c.overflowing()...) {
		t.Error(fault)
	}
	if leases := c.told[events.LeaseTaken]; leases != 8 {
		t.Errorf("%d leases: expected one of each service at its start, and after 18 hours the same again", leases)
	}
	if share := c.steps.share(); share < 0.98 || share > 1 {
		t.Errorf("training went on for %.4f of the time", share)
	}
	if t.Failed() {
		t.Log(c.table())
	}
}

func TestWhatGrowsIsFoundAndWhatChangesByChanceIsNot(t *testing.T) {
	for _, test := range []struct {
		perDay float64
		grows  bool
	}{{0, false}, {-300, false}, {5, false}, {300, true}} {
		random, samples := rand.New(rand.NewPCG(1, 1)), []sample(nil)
		for hour := range 9 * 24 {
			days := 1 + float64(hour)/24
			size := 10_000 + test.perDay*days + 500*random.NormFloat64()
			samples = append(samples, sample{days: days, machines: map[string]float64{"it": size}})
		}
		trend := fit(samples, "it")
		if trend.grows() != test.grows || math.Abs(trend.slope-test.perDay) > 4*trend.error {
			t.Errorf("%v a day: found %+v", test.perDay, trend)
		}
	}
}

func TestWhatIsKeptShortIsNoGrowth(t *testing.T) {
	memory := []byte(`{"members":{},"data":[{"firstStep":0,"samples":0,"globalBatch":8},{"firstStep":9,"samples":72,"globalBatch":7}]}`)
	if bytes, count := bounded(memory); bytes != len(memory)-len(`{"members":{},"data":}`) || count != 2 {
		t.Errorf("%d bytes of %d stretches", bytes, count)
	}
	if bytes, count := bounded([]byte(`{"nodes":{}}`)); bytes != 0 || count != 0 {
		t.Errorf("%d bytes of %d stretches of a service that has none", bytes, count)
	}
}

func TestAHangThatNobodyFindsIsAFault(t *testing.T) {
	c := &course{struck: map[string]*strike{
		"n1": {kind: kinds[2], at: time.Hour}, "n2": {kind: kinds[2], at: time.Hour, lost: true}, "n3": {kind: kinds[3], at: time.Hour},
	}, world: &world.World{}}
	if c.steps.end = 2 * time.Hour; len(c.unsound()) != 1 {
		t.Errorf("faults %v", c.unsound())
	}
	if c.steps.end = 70 * time.Minute; len(c.unsound()) > 0 {
		t.Errorf("faults %v: it may yet be found", c.unsound())
	}
}

func TestAllThatAMachineHoldsIsReached(t *testing.T) {
	type machine struct {
		inner *machine
		table map[string][]byte
		any   any
	}
	small := &machine{table: map[string][]byte{"a": make([]byte, 10)}}
	small.inner = small
	large := &machine{inner: small, any: make([]byte, 500), table: map[string][]byte{"b": make([]byte, 1000)}}
	if more := reached(large) - reached(small); more < 1500 || more > 1700 {
		t.Errorf("1,500 bytes more are counted as %d", more)
	}
}
