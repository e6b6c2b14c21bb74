// Command planner measures the planner beside what it replaces.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

// row is one figure.
type row struct {
	Figure       string  `json:"figure"`
	Unit         string  `json:"unit"`
	Ours         float64 `json:"ours"`
	Baseline     float64 `json:"baseline"`
	BaselineName string  `json:"baselineName"`
	Ratio        float64 `json:"ratio"`  // baseline / ours
	Target       float64 `json:"target"` // ours at most; 0 for none
	Holds        bool    `json:"holds"`
}

// report gathers the rows of all tables.
type report struct{ rows []row }

// add completes a row: it holds where ours is at most the target, and at least minRatio times better than the baseline.
func (r *report) add(figure row, minRatio float64) {
	if figure.Baseline > 0 && figure.Ours > 0 {
		figure.Ratio = figure.Baseline / figure.Ours
	}
	const rounding = 1e-9
	figure.Holds = (figure.Target == 0 || figure.Ours <= figure.Target*(1+rounding)) && (figure.Baseline == 0 || figure.Ratio >= minRatio*(1-rounding))
	r.rows = append(r.rows, figure)
}

// seconds is the least CPU time of a few calls: few of a long one, more of a short one.
func seconds(call func()) float64 {
	const enough = 200 * time.Millisecond
	least, total := time.Duration(1<<62), time.Duration(0)
	for total < enough {
		before := spent()
		calls := 0
		for spent()-before < time.Millisecond { // finer than the clock of the processor's time
			call()
			calls++
		}
		took := spent() - before
		total += took
		least = min(least, took/time.Duration(calls))
	}
	return least.Seconds()
}

func main() {
	file := flag.String("json", "", "write the rows to this file")
	cases := flag.String("cases", "", "take the networks of dtfm_networks.json in this directory")
	flag.Parse()
	var r report
	if err := run(&r, *cases); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *file != "" {
		if err := write(*file, r.rows); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	failed := 0
	for _, figure := range r.rows {
		if !figure.Holds {
			failed++
			fmt.Printf("does not hold: %s: %.6g %s, target %.6g, %s %.6g\n", figure.Figure, figure.Ours, figure.Unit, figure.Target, figure.BaselineName, figure.Baseline)
		}
	}
	fmt.Printf("%d of %d figures hold\n", len(r.rows)-failed, len(r.rows))
	if failed > 0 {
		os.Exit(1)
	}
}

func run(r *report, cases string) error {
	planning(r)
	networks, err := load(cases)
	if err != nil {
		return err
	}
	return placement(r, networks)
}

func write(file string, rows []row) error {
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
