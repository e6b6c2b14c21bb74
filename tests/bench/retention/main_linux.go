// Command retention measures which share of its throughput each living process keeps after a loss.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/torch"
)

// target is the share that each living process keeps at least.
const target = 0.95

// limit is for how long whatever must happen is waited for.
const limit = 5 * time.Minute

// job is what loses a process.
type job struct {
	what      string
	script    string
	sleeps    bool // its layers take a fixed time, whatever the machine does
	processes int
	samples   int // of a step, as its script has it
}

var jobs = []job{
	{"two that compute", torch.Elastic, false, 2, 24},
	{"eight whose layers sleep", "sleeps.py", true, 8, 56},
}

func main() {
	file := flag.String("json", "", "write the figures to this file")
	steps := flag.Int("steps", 50, "over which a throughput is measured, before and after the loss")
	flag.Parse()
	if flag.NArg() > 0 || *steps < 1 {
		fmt.Fprintf(os.Stderr, "bench-retention: expected -steps above 0 and no arguments, got %d and %q\n", *steps, flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var report figures.Report
	for _, j := range jobs {
		row, err := j.row(ctx, *steps)
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench-retention: %s: %v\n", j.what, err)
			os.Exit(1)
		}
		report.Add(row)
	}
	if err := report.Finish(*file); err != nil {
		fmt.Fprintln(os.Stderr, "bench-retention:", err)
		os.Exit(1)
	}
}

// row measures a job, unless this machine cannot tell: processes that compute need a core each.
func (j job) row(ctx context.Context, steps int) (figures.Row, error) {
	row := figures.Row{Figure: j.what + ": seconds of a process for a sample, after the loss of one", Unit: "s",
		BaselineName: "before it", LeastRatio: target}
	if cores := runtime.NumCPU(); !j.sleeps && cores < j.processes {
		row.Skipped = fmt.Sprintf("%d processes that compute need as many cores, and there are %d", j.processes, cores)
	} else if err := torch.Find(ctx); !j.sleeps && err != nil {
		row.Skipped = err.Error()
	}
	if row.Skipped != "" {
		fmt.Printf("%s: skipped: %s\n", j.what, row.Skipped)
		return row, nil
	}
	before, after, err := j.lose(ctx, steps)
	if err != nil {
		return row, err
	}
	row.Baseline, row.Ours = 1/before, 1/after
	fmt.Printf("%s: %.2f samples/s a process before kill -9 of one, %.2f a living process after it, over %d steps each: "+
		"ratio %.3f, target %.2f\n", j.what, before, after, steps, after/before, target)
	return row, nil
}

// lose runs the job, kills a process, and returns how many samples a second each living one trained before it and after.
func (j job) lose(ctx context.Context, steps int) (before, after float64, err error) {
	place, err := torch.Here()
	if err != nil {
		return 0, 0, err
	}
	if j.sleeps {
		place.Examples = filepath.Join(filepath.Dir(place.Tests), "bench", "retention")
	}
	directory, err := os.MkdirTemp("", "reknit-bench-retention-")
	if err != nil {
		return 0, 0, err
	}
	var names []string
	for i := range j.processes {
		names = append(names, fmt.Sprint("w", i+1))
	}
	run, err := torch.NewReknit(place, j.script, directory, names, torch.Endless)
	if err != nil {
		return 0, 0, err
	}
	defer run.Close()
	if before, err = j.rate(ctx, run, steps, j.processes); err != nil {
		return 0, 0, fmt.Errorf("before the loss: %w; see %s", err, directory)
	}
	if _, err = run.Hit(ctx, limit, torch.KillNode, names[1]); err != nil {
		return 0, 0, fmt.Errorf("%w; see %s", err, directory)
	}
	if after, err = j.rate(ctx, run, steps, j.processes-1); err != nil {
		return 0, 0, fmt.Errorf("after the loss: %w; see %s", err, directory)
	}
	run.Close()
	return before, after, os.RemoveAll(directory)
}

// settling is how many steps pass after a change before anything is measured.
const settling = 5

// rate waits until so many processes have trained so many steps together, and returns how many samples a second each of them trained.
func (j job) rate(ctx context.Context, run *torch.Job, steps, world int) (float64, error) {
	if err := run.SettleFor(ctx, limit, settling+steps+1, world); err != nil {
		return 0, err
	}
	var last torch.Step
	var times []float64 // at which a process completed its last steps, the newest first
	all := run.Course.Steps()
	for i := len(all) - 1; len(times) <= steps; i-- {
		if step := all[i]; step.World == world && (last.Worker == "" || step.Worker == last.Worker) {
			last, times = step, append(times, step.Time)
		}
	}
	return float64(j.samples*steps) / (times[0] - times[steps]) / float64(world), nil
}
