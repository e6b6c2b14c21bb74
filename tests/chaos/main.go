// Command chaos plays random churn on real processes, a script for each seed, and judges how it ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	first := flag.Uint64("first", 1, "first seed")
	count := flag.Int("seeds", 1, "how many seeds")
	reknit := flag.String("reknit", "bin/reknit", "the command under test")
	rows := flag.String("json", "", "write the figures to this file")
	scriptOnly := flag.Bool("script-only", false, "print what the seeds do, and do nothing")
	flag.Parse()
	if *count < 1 || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "chaos: -seeds: expected at least 1 and no further arguments, got %d and %q\n", *count,
			flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var outcomes []outcome
	for seed := *first; seed < *first+uint64(*count) && ctx.Err() == nil; seed++ {
		churn := churnOf(seed)
		if *scriptOnly {
			fmt.Printf("# seed %d: %s\n%s", seed, strings.Join(churn.flags(), " "), churn.Script)
			continue
		}
		outcome := play(ctx, *reknit, churn)
		if ctx.Err() != nil {
			break // interrupted: that is no failure of the seed
		}
		fmt.Println(outcome)
		outcomes = append(outcomes, outcome)
	}
	if !*scriptOnly && !conclude(outcomes, *count, *rows) {
		os.Exit(1)
	}
}

// conclude prints and writes the figures, and reports whether every seed ended well.
func conclude(outcomes []outcome, seeds int, file string) bool {
	rows := figures(outcomes, seeds)
	good := true
	for _, row := range rows {
		fmt.Println(row)
		good = good && row.Holds
	}
	if file != "" {
		if err := writeRows(file, rows); err != nil {
			fmt.Fprintln(os.Stderr, "chaos: -json:", err)
			return false
		}
	}
	return good
}
