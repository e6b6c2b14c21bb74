// Command soak has hundreds of failures of every kind strike a PyTorch job, one after the other, and looks after each
// whether training goes on, whether it lost a step that somebody held, and whether history names what happened.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/reknit/reknit/tests/torch"
)

func main() {
	failures := flag.Int("failures", 300, "how many")
	during := flag.Duration("for", 24*time.Hour, "no failure begins later")
	seed := flag.Uint64("seed", 1, "of which failure strikes whom")
	only := flag.String("only", "", "draw these alone, with commas; a part of a name is enough")
	report := flag.String("report", "", "write the report to this file, too")
	flag.Parse()
	drawn := chosen(*only)
	if flag.NArg() > 0 || *failures < 1 || *during <= 0 || len(drawn) == 0 {
		fmt.Fprintf(os.Stderr,
			"soak: expected -failures and -for above 0, -only of known failures and no arguments, got %d, %v, %q and %q\n",
			*failures, *during, *only, flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := torch.Find(ctx); err != nil {
		fmt.Println("soak: skipped:", err)
		return
	}
	if err := run(ctx, rand.New(rand.NewPCG(*seed, 0)), *failures, *during, drawn, *report); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// chosen returns the failures whose names have one of some parts in them.
func chosen(parts string) (all []failure) {
	for _, f := range failures {
		for part := range strings.SplitSeq(parts, ",") {
			if strings.Contains(f.name, part) {
				all = append(all, f)
				break
			}
		}
	}
	return all
}

// run has failures strike a job, trains the same undisturbed, and compares.
func run(ctx context.Context, random *rand.Rand, count int, during time.Duration, drawn []failure, report string) error {
	place, err := torch.Here()
	if err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "reknit-soak-")
	if err != nil {
		return err
	}
	stage, err := open(ctx, place, directory, random)
	if err != nil {
		return err
	}
	defer stage.close()
	err = stage.play(drawn, count, time.Now().Add(during))
	stage.close()
	err = errors.Join(err, stage.write(os.Stdout), stage.writeTo(report))
	disturbed := stage.job.Course.Steps()
	err = errors.Join(err, keep(filepath.Join(directory, "disturbed.jsonl"), disturbed), torch.CompareReplicas(disturbed))
	healed, lost := torch.Losses(disturbed)
	if lost != nil {
		return fmt.Errorf("%w; logs and all steps are in %s", errors.Join(err, lost), directory)
	}
	fmt.Printf("\ntraining the same %d steps in one undisturbed process ...\n", len(healed))
	steps, alone := torch.Undisturbed(ctx, place, filepath.Join(place.Tests, "soak", torch.Soak), directory, uint64(len(healed)))
	if alone == nil {
		alone = errors.Join(keep(filepath.Join(directory, "undisturbed.jsonl"), steps), torch.CompareStates(disturbed, steps),
			compare(healed, steps))
	}
	if err := errors.Join(err, alone); err != nil {
		return fmt.Errorf("%w; logs and all steps are in %s", err, directory)
	}
	return os.RemoveAll(directory)
}

func compare(healed []float64, steps []torch.Step) error {
	undisturbed, err := torch.Losses(steps)
	if err != nil {
		return err
	}
	return torch.CompareLosses(healed, undisturbed)
}

// keep writes steps to a file, one a line, as they were heard.
func keep(path string, steps []torch.Step) error {
	var text []byte
	for _, step := range steps {
		line, err := json.Marshal(struct {
			Worker string `json:"worker"`
			torch.Step
		}{step.Worker, step})
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	return os.WriteFile(path, text, 0o644)
}
