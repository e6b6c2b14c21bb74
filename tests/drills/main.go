// Command drills has failures strike real processes, one cluster each, and judges what comes of them. Its README tells
// which.
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
	directory := flag.String("store", "", "serve S3 from this directory, and play nothing: what a drill starts")
	address := flag.String("listen", "127.0.0.1:0", "where -store listens")
	dies := flag.Int("dies", 0, "die in the middle of the object that is put to -store as this one; 0: never")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "drills [flags] [DRILL...]\n\nPlays all of %v, or those named.\n\nFlags:\n",
			names())
		flag.PrintDefaults()
	}
	flag.Parse()
	if *directory != "" {
		fmt.Fprintln(os.Stderr, "drills:", serveStore(*directory, *address, *dies))
		os.Exit(1)
	}
	slog.SetLogLoggerLevel(slog.LevelError)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *reknit, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "drills:", err)
		os.Exit(1)
	}
}

func names() []string {
	var all []string
	for _, drill := range drills {
		all = append(all, drill.name)
	}
	return all
}

// run plays the drills named, or all, one after the other, and says at the end how many failed.
func run(ctx context.Context, reknit string, named []string) error {
	for _, name := range named {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("expected some of %v, got %q", names(), name)
		}
	}
	text, err := textFile()
	if err != nil {
		return err
	}
	failed := 0
	for _, drill := range drills {
		if len(named) > 0 && !slices.Contains(named, drill.name) {
			continue
		}
		directory, err := os.MkdirTemp("", "reknit-drill-"+drill.name+"-")
		if err != nil {
			return err
		}
		outcome, err := drill.play(ctx, reknit, text, directory)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed++
			fmt.Printf("%-16s FAILED: %v\n  log and processes' logs: %s\n", drill.name, err, directory)
		default:
			fmt.Printf("%-16s equal digests; %v\n", drill.name, outcome)
			if err := os.RemoveAll(directory); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d drills failed", failed)
	}
	return nil
}

// textFile returns the text that all train on; it comes with every Go distribution.
func textFile() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	return filepath.Join(strings.TrimSpace(string(root)), "src", "testdata", "Isaac.Newton-Opticks.txt"), err
}
