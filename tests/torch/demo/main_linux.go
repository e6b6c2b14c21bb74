// Command demo trains a small GPT with PyTorch on four processes, breaks things, and shows that training goes on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/reknit/reknit/tests/torch"
)

func main() {
	picture := flag.String("picture", filepath.Join(".reknit", "pytorch.svg"), "write the picture of elastic.py to this file")
	flag.Parse()
	scripts := flag.Args()
	if len(scripts) == 0 {
		scripts = []string{torch.Elastic, torch.Pipeline}
	}
	for _, script := range scripts {
		if scenes[script] == nil {
			fmt.Fprintf(os.Stderr, "demo-pytorch: expected %s or %s, got %q\n", torch.Elastic, torch.Pipeline, script)
			os.Exit(2)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := torch.Find(ctx); err != nil {
		fmt.Println("demo-pytorch: skipped:", err)
		return
	}
	for _, script := range scripts {
		if err := run(ctx, script, *picture); err != nil {
			fmt.Fprintf(os.Stderr, "demo-pytorch: %s: %v\n", script, err)
			os.Exit(1)
		}
	}
}

// run plays the scenes of a script on one job, trains the same undisturbed, and shows both.
func run(ctx context.Context, script, picture string) error {
	place, err := torch.Here()
	if err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "reknit-demo-pytorch-")
	if err != nil {
		return err
	}
	job, err := torch.NewReknit(place, script, directory, workers, torch.Endless)
	if err != nil {
		return err
	}
	defer job.Close()
	acts, err := play(ctx, job, script)
	job.Close()
	healed, lost := torch.Losses(job.Course.Steps())
	if err := errors.Join(err, lost); err != nil {
		return fmt.Errorf("%w; logs are in %s", err, directory)
	}
	fmt.Printf("\ntraining the same %d steps in one undisturbed process, on one core ...\n", len(healed))
	steps, err := torch.Undisturbed(ctx, place, script, directory, uint64(len(healed)))
	if err != nil {
		return err
	}
	undisturbed, err := torch.Losses(steps)
	if err != nil {
		return err
	}
	if script == torch.Elastic {
		if err := draw(picture, job.Course.Steps(), acts, undisturbed); err != nil {
			return err
		}
		fmt.Printf("\npicture: %s\n", picture)
	}
	return errors.Join(torch.CompareLosses(healed, undisturbed), os.RemoveAll(directory))
}
