package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
)

// row is a figure in the form that all benchmarks share; what is absent is 0.
type row struct {
	Figure       string  `json:"figure"`
	Unit         string  `json:"unit"`
	Ours         float64 `json:"ours"`
	Baseline     float64 `json:"baseline"`
	BaselineName string  `json:"baselineName"`
	Ratio        float64 `json:"ratio"` // baseline / ours
	Target       float64 `json:"target"`
	Holds        bool    `json:"holds"`
}

// Targets.
const (
	leastFill    = 0.90 // of the sum of the links' rates
	mostOfBound  = 1.05
	leastSpeedup = 2.0  // over the fastest neighbour alone
	mostIdle     = 1.0  // seconds of all other trainers together; Chaos: 10
	mostSecured  = 1.03 // of the time without keys
)

// uneven says that links ask for the speed-up over the fastest alone: there are four, and together they have a tenth
// more than that times its rate. Nobody can be so much faster if one link has most of the rate.
func uneven(s scenario) bool {
	return len(s.Neighbours) >= 4 && sumMegabits(s.Neighbours) >= 1.1*leastSpeedup*s.Neighbours[s.fastest()].MegabitsPerSecond
}

// outcome is how a state came to the joining node by each policy.
type outcome struct {
	scenario
	Bytes    int64
	Policies []passage // ours first
	Secured  passage   // ours with keys
}

// passage is how a state came by one policy.
type passage struct {
	Policy      string
	Seconds     float64
	Twice       int64   // bytes that came although they were there
	IdleSeconds float64 // of all other trainers together
	Busy        float64 // share of this machine's processors, whoever used them
}

func (o outcome) bound() float64 { return boundSeconds(float64(o.Bytes), o.Neighbours) }

// fill is the share of the links' rates that a passage used.
func (o outcome) fill(p passage) float64 {
	return float64(o.Bytes) * 8 / 1e6 / p.Seconds / sumMegabits(o.Neighbours)
}

// figures judges an outcome.
func (o outcome) figures() []row {
	ours := o.Policies[0]
	name := func(figure string) string { return fmt.Sprintf("%s, %d MiB, seed %d", figure, o.Bytes>>20, o.Seed) }
	rows := []row{
		{Figure: name("share of the links' rates"), Unit: "of 1", Ours: o.fill(ours), Target: leastFill,
			Holds: o.fill(ours) >= leastFill},
		{
			Figure: name("scale-out"), Unit: "s", Ours: ours.Seconds, Baseline: o.bound(), BaselineName: "bound",
			Ratio: o.bound() / ours.Seconds, Target: mostOfBound * o.bound(), Holds: ours.Seconds <= mostOfBound*o.bound(),
		},
	}
	for _, baseline := range o.Policies[1:] {
		ratio, target := baseline.Seconds/ours.Seconds, baseline.Seconds
		if baseline.Policy == policySingle && uneven(o.scenario) {
			target /= leastSpeedup
		}
		if slices.Contains([]string{policyShares, policySoonest, policyPlain, policyHashed}, baseline.Policy) {
			target = 0
		}
		rows = append(rows, row{
			Figure: name("scale-out"), Unit: "s", Ours: ours.Seconds, Baseline: baseline.Seconds, BaselineName: baseline.Policy,
			Ratio: ratio, Target: target, Holds: target == 0 || ours.Seconds <= target,
		})
	}
	secured := o.Secured.Seconds
	return append(rows,
		row{Figure: name("scale-out, with keys"), Unit: "s", Ours: secured, Baseline: ours.Seconds, BaselineName: "without keys",
			Ratio: ours.Seconds / secured, Target: mostSecured * ours.Seconds, Holds: secured <= mostSecured*ours.Seconds},
		row{Figure: name("sent twice"), Unit: "bytes", Ours: float64(ours.Twice), Holds: true},
		row{Figure: name("idle time of the other trainers"), Unit: "s", Ours: ours.IdleSeconds, Target: mostIdle,
			Holds: ours.IdleSeconds <= mostIdle})
}

// print shows every policy of an outcome.
func (o outcome) print() {
	fmt.Printf("%d MiB, %s; bound %.2f s\n", o.Bytes>>20, o.scenario, o.bound())
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer table.Flush()
	fmt.Fprintln(table, "policy\tseconds\tof bound\tof rates\tto ours\ttwice MiB\tidle s\tbusy\t")
	for _, p := range append(slices.Clone(o.Policies), o.Secured) {
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.3f\t%.2f\t%.1f\t%.2f\t%.2f\t\n", p.Policy, p.Seconds, p.Seconds/o.bound(),
			o.fill(p),
			p.Seconds/o.Policies[0].Seconds, float64(p.Twice)/(1<<20), p.IdleSeconds, p.Busy)
	}
}

func writeRows(file string, rows []row) error {
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
