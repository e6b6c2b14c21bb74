// Command objectstore has real processes move state on every path there is, and judges by what their servers pass on that all
// of it is read from object stores. Its README tells how.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	reknit := flag.String("reknit", "bin/reknit", "the command under test")
	python := flag.String("python", "python3", "interpreter that has PyTorch; without it those rows are skipped")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelError)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *reknit, *python, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "objectstore:", err)
		os.Exit(1)
	}
}

// run plays the stories named, or all, and fails if a row of one did.
func run(ctx context.Context, reknit, python string, named []string) error {
	program, err := filepath.Abs(reknit)
	if err != nil {
		return err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	text := filepath.Join(strings.TrimSpace(string(root)), "src", "testdata", "Isaac.Newton-Opticks.txt")
	failed := 0
	for _, story := range stories {
		if len(named) > 0 && !slices.Contains(named, story.name) {
			continue
		}
		if story.torch && exec.Command(python, "-c", "import torch").Run() != nil {
			fmt.Printf("SKIPPED  %s: %s finds no torch (PYTHON= names one that does)\n", story.name, python)
			continue
		}
		if err := story.play(ctx, &scene{reknit: program, python: python, text: text}); err != nil {
			fmt.Printf("FAILED   %s: %v\n", story.name, err)
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d stories failed", failed, len(stories))
	}
	return nil
}
