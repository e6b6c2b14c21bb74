package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/reknit/reknit/tests/bench/figures"
)

// Targets.
const (
	mostIdle  = 1.0 // seconds of all other trainers together
	leastGain = 3.0 // over layers that move while all stand
)

// judge adds the figures of both joins.
func judge(report *figures.Report, followed, stopped join) {
	const stands = "layers move while all stand"
	report.Add(figures.Row{
		Figure: "idle time of the other trainers", Unit: "s", Ours: followed.idle(), Target: mostIdle,
		Baseline: stopped.idle(), BaselineName: stands, LeastRatio: leastGain,
	})
	report.Add(figures.Row{
		Figure: "their steps meanwhile took longer by", Unit: "s", Ours: followed.slower(), Baseline: max(0, stopped.slower()), BaselineName: stands,
	})
	report.Add(figures.Row{
		Figure: "join request to everybody's first step", Unit: "s", Ours: followed.FirstStepSeconds,
		Baseline: stopped.FirstStepSeconds, BaselineName: stands,
	})
	report.Add(figures.Row{
		Figure: "bytes moved", Unit: "MiB", Ours: mebibytes(followed.MovedBytes), Baseline: mebibytes(stopped.MovedBytes), BaselineName: stands,
	})
	for i, now := range followed.Stood {
		row := figures.Row{Figure: "stall of " + now.Node + " as told", Unit: "s", Ours: now.Told, BaselineName: stands}
		if i < len(stopped.Stood) {
			row.Baseline = stopped.Stood[i].Told
		}
		report.Add(row)
	}
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// printTable shows both joins.
func printTable(joins []join) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "layers move\trequest to first step s\tidle s\tslower s\tidle s, told s, slower s of each\tMiB moved\tstep s before\tafter\t")
	for i, j := range joins {
		how := []string{"while training goes on", "while all stand"}[i]
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.2f\t", how, j.FirstStepSeconds, j.idle(), j.slower())
		for _, stood := range j.Stood {
			fmt.Fprintf(table, " %s %.2f, %.2f, %.2f;", stood.Node, stood.Idle, stood.Told, stood.Slower)
		}
		fmt.Fprintf(table, "\t%.1f\t%.2f\t%.2f\t\n", mebibytes(j.MovedBytes), j.Before, j.After)
	}
	table.Flush()
	for _, j := range joins {
		fmt.Printf("%s ->%s\n  %q\n  seconds from the request:%s\n", j.Layouts[0], j.Layouts[1], j.Layers, j.Moments)
		for _, f := range j.Followed {
			fmt.Printf("  %s had followed to step %d after %.2f s and %.1f MiB, %d behind %s\n", f.Node, f.Step, f.Seconds, mebibytes(f.Bytes), f.Behind, f.Reason)
		}
	}
}
