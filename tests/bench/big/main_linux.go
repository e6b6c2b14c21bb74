// Command big measures joins, leaves and kills of PyTorch jobs with models of the size of GPT-2.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/reknit/reknit/tests/torch"
)

func main() {
	name := flag.String("model", "124M", "size of the model: "+strings.Join(slices.Sorted(maps.Keys(models)), ", "))
	nodes := flag.Int("nodes", 2, "nodes that train, one of which is killed and one of which leaves")
	joins := flag.Int("joins", 0, "how often a further node joins, takes the state and leaves")
	takes := flag.Bool("snapshots", false, "measure instead what snapshots cost the steps of one node")
	flag.Parse()
	model, known := models[*name]
	if flag.NArg() > 0 || !known || *nodes < 2 || *joins < 0 {
		fmt.Fprintf(os.Stderr, "bench-big: expected a known -model, -nodes above 1, -joins and no arguments, got %q, %d, %d, %q\n",
			*name, *nodes, *joins, flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := torch.Find(ctx); err != nil {
		fmt.Println("bench-big: skipped:", err)
		return
	}
	if err := run(ctx, *name, model, *nodes, *joins, *takes); err != nil {
		fmt.Fprintln(os.Stderr, "bench-big:", err)
		os.Exit(1)
	}
}

// run plays all scenes on one job, or takes snapshots, and prints what it cost.
func run(ctx context.Context, name string, model model, nodes, joins int, takes bool) error {
	place, err := torch.Here()
	if err != nil {
		return err
	}
	if err := os.Setenv("GPT2", model.constants(nodes)); err != nil {
		return err
	}
	rate, err := copyRate()
	if err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "reknit-bench-big-")
	if err != nil {
		return err
	}
	fmt.Printf("GPT-2 %s on %d nodes; one TCP connection over loopback and SHA-256 carry %.2f GB/s\n", name, nodes, rate/1e9)
	script, err := filepath.Rel(place.Examples, filepath.Join(place.Tests, "..", "bench", "big", "gpt2.py"))
	if err != nil {
		return err
	}
	if takes {
		if err := snapshots(ctx, place, script, directory); err != nil {
			return fmt.Errorf("%w; logs are in %s", err, directory)
		}
		return os.RemoveAll(directory)
	}
	job, err := torch.NewReknit(place, script, directory, []string{node(1)}, torch.Endless)
	if err != nil {
		return err
	}
	defer job.Close()
	stage, err := newStage(ctx, job, directory)
	if err != nil {
		return err
	}
	err = stage.play(nodes, joins)
	stage.print(rate)
	if err != nil {
		return fmt.Errorf("%w; logs are in %s", err, directory)
	}
	job.Close()
	return os.RemoveAll(directory)
}
