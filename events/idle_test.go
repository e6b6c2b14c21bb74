package events

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestAnIdleNodeIsToldWhatItWouldNeed(t *testing.T) {
	planned := Predicted{StepSeconds: 1.5}
	for needs, want := range map[[2]float64]string{
		{}: "its links are too slow: a step would take 4 s with it, and takes 1.5 s without; " +
			"no bandwidth is enough with so long a delay",
		{2e6}:           "and takes 1.5 s without; from 16 Mbit/s both ways to two others on it slows nothing down",
		{25e7}:          "from 2 Gbit/s both ways",
		{123.456e6 / 8}: "from 124 Mbit/s both ways",
		{999.6e6 / 8}:   "from 1 Gbit/s both ways",
		{999e6 / 8}:     "from 999 Mbit/s both ways",
		{1234.5e6 / 8}:  "from 1.24 Gbit/s both ways",
		{2e15 / 8}:      "from 2000000 Gbit/s both ways",
		{0.01234e6 / 8}: "from 0.0124 Mbit/s both ways",
		{0, 0.0123456}:  "from a round trip of 12.3 ms",
		{0, 12.3456}:    "from a round trip of 12300 ms",
		{0, 0.03}:       "no bandwidth is enough with so long a delay: from a round trip of 30 ms to two others on it slows nothing down",
	} {
		if got := (Idle{"n", 4, needs[0], needs[1]}).Why(planned); !strings.Contains(got, want) {
			t.Errorf("%q: expected %q", got, want)
		}
	}
}

// Whatever is needed, what is told is enough, and off by less than a hundredth.
func TestWhatAnIdleNodeIsToldIsEnough(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		needs := math.Exp(random.Float64() * 30)
		if up := rounded(needs, math.Ceil); up < needs*(1-1e-8) || up > 1.01*needs {
			t.Fatalf("%v is rounded up to %v", needs, up)
		}
		if down := rounded(needs, math.Floor); down > needs*(1+1e-8) || down < 0.99*needs {
			t.Fatalf("%v is rounded down to %v", needs, down)
		}
	}
}

func TestAnIdleNodeIsAMemberWithoutAPlace(t *testing.T) {
	plan := Plan{Nodes: []Member{{Node: "n1"}, {Node: "n2"}}, Pipelines: []Pipeline{{Stages: []Stage{{"n1", Range{0, 1}}}}}}
	members := map[string]bool{"n1": true, "n2": true}
	for _, test := range []struct {
		idle  Idle
		fault string
	}{
		{Idle{"n2", 1, 0, 0}, ""}, {Idle{"n2", 1, 5, 0}, ""},
		{Idle{"n1", 1, 5, 0}, "[0].node"}, {Idle{"n3", 1, 5, 0}, "[0].node"},
		{Idle{"n2", 0, 5, 0}, "[0]: expected finite seconds"},
		{Idle{"n2", 1, -5, 0}, "[0]: expected"}, {Idle{"n2", math.NaN(), 5, 0}, "[0]: expected"},
		{Idle{"n2", 1, math.Inf(1), 0}, "[0]: expected"}, {Idle{"n2", 1, 0, 0.1}, ""}, {Idle{"n2", 1, 0, -1}, "[0]: expected"},
	} {
		plan.Idle = []Idle{test.idle}
		err := plan.validateIdle(members)
		if (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%+v: %v, expected %q", test.idle, err, test.fault)
		}
	}
}
