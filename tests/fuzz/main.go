package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	span := flag.Duration("time", 10*time.Second, "how long each target runs")
	only := flag.String("targets", "", "those whose names match this regular expression; empty: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pattern, err := regexp.Compile(*only)
	if err == nil {
		err = run(ctx, ".", pattern, *span)
	}
	if err != nil {
		stop()
		log.Fatal(err)
	}
}

// target is a function Fuzz… of a package's tests.
type target struct{ folder, name string }

var declared = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// find returns every target below a folder, in the order of their packages.
func find(root string, pattern *regexp.Regexp) (targets []target, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testdata/") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(text, -1) {
			if name := string(match[1]); pattern.MatchString(name) {
				targets = append(targets, target{filepath.Dir(path), name})
			}
		}
		return err
	})
	return targets, err
}

func run(ctx context.Context, root string, pattern *regexp.Regexp, span time.Duration) error {
	targets, err := find(root, pattern)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz target matches %q", pattern)
	}
	binaries, err := os.MkdirTemp("", "reknit-fuzz-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(binaries) }()
	began, sum, failed := time.Now(), tally{}, []string(nil)
	for i, one := range targets {
		binary := filepath.Join(binaries, "test")
		if i == 0 || targets[i-1].folder != one.folder {
			err = build(ctx, one.folder, binary)
		}
		var found tally
		if err == nil {
			found, err = one.fuzz(ctx, binary, span)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		sum = tally{sum.runs + found.runs, sum.kept + found.kept}
		result := "ok"
		if err != nil {
			result, failed = "FAILED", append(failed, one.folder+": "+one.name)
		}
		fmt.Printf("%-42s %-36s %12d inputs %6d kept  %s\n", one.folder, one.name, found.runs, found.kept, result)
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Printf("\n%d targets, %d inputs in %s, %d kept in the corpora, %d failed\n",
		len(targets), sum.runs, time.Since(began).Round(time.Second), sum.kept, len(failed))
	if len(failed) > 0 {
		return fmt.Errorf("failed, with inputs in testdata/fuzz of the package:\n  %s", strings.Join(failed, "\n  "))
	}
	return nil
}

// build compiles a package's tests for fuzzing, once for all of its targets.
func build(ctx context.Context, folder, binary string) error {
	output, err := exec.CommandContext(ctx, "go", "test", "-c", "-fuzz=.", "-o", binary, "./"+folder).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build: %w\n%s", err, output)
	}
	return nil
}

// tally is what a run of a target came to.
type tally struct {
	runs uint64
	kept int // inputs in its corpus, which is in Go's cache
}

// progress is the line in which package testing tells how far it is.
var progress = regexp.MustCompile(`execs: (\d+) .*\(total: (\d+)\)`)

// fuzz runs a target. An input over which it stays for minutes is a failure, too.
func (t target) fuzz(ctx context.Context, binary string, span time.Duration) (tally, error) {
	cache, err := corpus(ctx, t.folder)
	if err != nil {
		return tally{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, span+3*time.Minute)
	defer cancel()
	command := exec.CommandContext(bounded, binary, "-test.run=^$", "-test.fuzz=^"+t.name+"$",
		"-test.fuzztime="+span.String(), "-test.fuzzminimizetime=20x", "-test.fuzzcachedir="+cache)
	command.Dir = t.folder
	output, err := command.CombinedOutput()
	if errors.Is(bounded.Err(), context.DeadlineExceeded) {
		err = errors.New("it did not end in time: one input takes for ever")
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, output)
	}
	told := progress.FindAllSubmatch(output, -1)
	if len(told) == 0 {
		return tally{}, err
	}
	last := told[len(told)-1]
	runs, _ := strconv.ParseUint(string(last[1]), 10, 64) // digits
	kept, _ := strconv.Atoi(string(last[2]))
	return tally{runs, kept}, err
}

// corpus is where go test keeps a package's corpora.
func corpus(ctx context.Context, folder string) (string, error) {
	output, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.ImportPath}}", "./"+folder).Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w", folder, err)
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return "", err
	}
	words := slices.Concat(strings.Fields(string(cache)), []string{"fuzz"}, strings.Fields(string(output)))
	return filepath.Join(words...), nil
}
