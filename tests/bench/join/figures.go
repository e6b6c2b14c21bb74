package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/reknit/reknit/tests/bench/figures"
)

// Targets.
const (
	mostIdle  = 10.0 // seconds of all other trainers together, as Chaos needs
	leastGain = 1.0  // over layers that move while all are paused
)

// judge adds the figures of both joins.
func judge(report *figures.Report, preCopied, stopped join) {
	const stands = "layers move while all are paused"
	report.Add(figures.Row{
		Figure: "idle time of the other trainers", Unit: "s", Ours: preCopied.idle(), Target: mostIdle,
		Baseline: stopped.idle(), BaselineName: stands, LeastRatio: leastGain,
	})
	report.Add(figures.Row{
		Figure: "their steps meanwhile took longer by", Unit: "s", Ours: preCopied.slower(),
		Baseline: max(0, stopped.slower()), BaselineName: stands,
	})
	report.Add(figures.Row{
		Figure: "join request to everybody's first step", Unit: "s", Ours: preCopied.FirstStepSeconds,
		Baseline: stopped.FirstStepSeconds, BaselineName: stands,
	})
	report.Add(figures.Row{
		Figure: "bytes moved", Unit: "MiB", Ours: mebibytes(preCopied.MovedBytes),
		Baseline: mebibytes(stopped.MovedBytes), BaselineName: stands,
	})
	for i, now := range preCopied.Stood {
		row := figures.Row{Figure: "stall of " + now.Node + " as told", Unit: "s", Ours: now.Told, BaselineName: stands}
		if i < len(stopped.Stood) {
			row.Baseline = stopped.Stood[i].Told
		}
		report.Add(row)
	}
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// print shows a join.
func (j join) print() {
	fmt.Printf("REKNIT_PRECOPY_STEPS=%s:%s ->%s\n", j.PreCopySteps, j.Layouts[0], j.Layouts[1])
	fmt.Printf("  %.2f s from the request to the first step of all, %.1f MiB moved, a step %.2f s before and %.2f s after; %s\n",
		j.FirstStepSeconds, mebibytes(j.MovedBytes), j.Before, j.After, strings.Join(j.Layers, ", "))
	for _, f := range j.CaughtUp {
		fmt.Printf("  %s had caught up to step %d after %.2f s and %.1f MiB, %d behind %s\n", f.Node, f.Step, f.Seconds,
			mebibytes(f.Bytes), f.Behind, f.Reason)
	}
	fmt.Printf("  seconds from the request:%s\n", j.Moments)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tidle s\twaited s\tas told s\tslower s\t")
	for _, stood := range j.Stood {
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t\n", stood.Node, stood.Idle, stood.Waited, stood.Told, stood.Slower)
	}
	fmt.Fprintf(table, "all\t%.2f\t\t\t%.2f\t\n", j.idle(), j.slower())
	table.Flush()
}
