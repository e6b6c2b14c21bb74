package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/reknit/reknit/tests/torch"
)

// workers train. The first hosts the rendezvous of torchrun, which loses the job with it, and is left alone.
var workers = []string{"w1", "w2", "w3", "w4"}

// healLimit is for how long healing is waited for: torchrun as documented takes about 50 s after a kill.
const healLimit = 120 * time.Second

// strike is a fault in the order in which they strike a job, and what may be seen of it.
type strike struct {
	torch.Fault
	target float64 // seconds to the next step, at most; 0 for none
}

// strikes end with those of which a job under torchrun may not recover.
var strikes = []strike{
	{torch.KillNode, 0.5}, {torch.KillTrainer, 0.5}, {torch.Leave, 0}, {torch.Break, 1}, {torch.Freeze, 5},
}

const joined = "a node joins"

// Names of the systems.
const (
	reknit     = "reknit"
	unchanged  = "reknit-unchanged"
	tightest   = "torchrun-tightest"
	documented = "torchrun-documented"
)

// system is what keeps a job going.
type system struct {
	name  string
	rival bool // without which the others are measured all the same
	start func(ctx context.Context, directory string) (*torch.Job, error)
}

func systems(place torch.Place) []system {
	torchrun := func(setting torch.Torchrun) func(context.Context, string) (*torch.Job, error) {
		return func(ctx context.Context, directory string) (*torch.Job, error) {
			return torch.NewTorchrun(ctx, setting, place, directory, workers)
		}
	}
	under := func(script string) func(context.Context, string) (*torch.Job, error) {
		return func(_ context.Context, directory string) (*torch.Job, error) {
			return torch.NewReknit(place, script, directory, workers, torch.Endless)
		}
	}
	return []system{
		{reknit, false, under(torch.Elastic)},
		{unchanged, false, under(torch.DDP)},
		{tightest, true, torchrun(torch.Tightest)},
		{documented, true, torchrun(torch.Documented)},
	}
}

// play strikes one job with all faults, and adds what each cost. A fault of which the job does not recover ends the
// run.
func play(ctx context.Context, s system, add func(name string, healing torch.Healing, healed bool)) error {
	directory, err := os.MkdirTemp("", "reknit-bench-recovery-")
	if err != nil {
		return err
	}
	job, err := s.start(ctx, directory)
	if err != nil {
		return err
	}
	defer job.Close()
	for i, strike := range strikes {
		if err := job.Settle(ctx, healLimit, len(workers)); err != nil {
			return errors.Join(err, fmt.Errorf("see %s", directory))
		}
		victim := workers[1+i%(len(workers)-1)]
		healing, err := job.Hit(ctx, healLimit, strike.Fault, victim)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		add(strike.Name, healing, err == nil)
		if err != nil {
			fmt.Printf("%s: %s: %v; see %s\n", s.name, strike.Name, err, directory)
			return nil
		}
		if strike.Ends {
			if err := rejoin(ctx, job, victim, add); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(directory)
}

// rejoin starts a worker again, once the others train calmly without it.
func rejoin(ctx context.Context, job *torch.Job, worker string, add func(string, torch.Healing, bool)) error {
	if err := job.Settle(ctx, healLimit, len(workers)-1); err != nil {
		return err
	}
	_ = job.Worker(worker).SignalAll(syscall.SIGKILL) // what is left of it
	if err := job.Await(worker, healLimit); err != nil {
		return err
	}
	healing, err := job.Join(ctx, healLimit, worker)
	add(joined, healing, err == nil)
	return err
}
