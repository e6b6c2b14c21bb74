package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/tests/torch"
)

var workers = []string{"w1", "w2", "w3", "w4"}

// newcomer joins the four.
const newcomer = "w5"

// limit is for how long a step is waited for. Four imports of PyTorch take over a minute of a machine with a load of 20.
const limit = 3 * time.Minute

// settledSteps are completed by all between two acts: the undisturbed run trains each of them again, on one core.
const settledSteps = 5

// act is something that happened, and what it cost.
type act struct {
	what string
	at   time.Time
	torch.Healing
}

// stage is where the acts are played.
type stage struct {
	ctx  context.Context
	job  *torch.Job
	acts []act
	err  error // the first; nothing is played after it
	idle int   // of the workers that are left, whom a plan may leave out while one is gone
}

// scenes are what happens to each script. Each leaves four workers to the next.
var scenes = map[string]func(*stage){torch.Elastic: elastic, torch.Pipeline: pipeline}

// play plays the scenes of a script once.
func play(ctx context.Context, job *torch.Job, script string) ([]act, error) {
	s := &stage{ctx: ctx, job: job}
	fmt.Printf("\n%s: four processes train; each begins with the import of PyTorch\n", script)
	s.settle(len(workers))
	fmt.Printf("\n%-44s %18s %16s %11s %9s\n", "", "next step of all", "stall of others", "usual step", "repeated")
	scenes[script](s)
	return s.acts, s.err
}

// elastic is everything that can happen.
func elastic(s *stage) {
	s.hit(torch.KillTrainer, "w2") // its agent starts it again
	s.settle(len(workers))
	s.hit(torch.KillNode, "w3")
	s.join("it is started again", "w3")
	s.hit(torch.Freeze, "w4")
	s.thaw("w4")
	s.hit(torch.Break, "w2")
	s.settle(len(workers))
	s.join("a fifth node joins", newcomer)
	s.settle(len(workers) + 1)
	s.hit(torch.Leave, newcomer)
	s.settle(len(workers))
	s.hit(torch.KillAgent, "w3")
	s.join("it is started again", "w3")
	for _, service := range processes.Services {
		s.settle(len(workers))
		s.perform("kill -9 of the "+service, func() (torch.Healing, error) {
			return s.job.Watch(s.ctx, limit, func() error { return s.job.KillService(service) })
		})
	}
}

// pipeline is what moves layers from stage to stage. One of three workers may be left out: a pipeline of two stages is as fast if the third
// is slow.
func pipeline(s *stage) {
	s.idle = 1
	s.resident()
	s.hit(torch.KillTrainer, "w2")
	s.settle(len(workers))
	s.hit(torch.Break, "w1")
	s.settle(len(workers))
	s.hit(torch.KillNode, "w3")
	s.join("it is started again", "w3")
	s.hit(torch.Leave, "w1")
	s.join("it is started again", "w1")
	s.resident()
}

// mostResident is how much of the state a process may have that trains one of two stages: four of six layers, with the largest
// among them, where the other stage's node is slower.
const mostResident = 0.9

// resident fails where a process has layers in memory that it does not train.
func (s *stage) resident() {
	if s.err != nil {
		return
	}
	for _, name := range s.job.Running() {
		part, err := s.job.Worker(name).Resident()
		if err == nil && part > mostResident {
			err = fmt.Errorf("%s has %.0f%% of the state in memory: expected what it trains, at most %.0f%%", name, 100*part, 100*mostResident)
		}
		s.err = errors.Join(s.err, err)
	}
}

// perform plays an act, unless one before it failed, prints it and remembers it.
func (s *stage) perform(what string, play func() (torch.Healing, error)) {
	if s.err != nil {
		return
	}
	at := time.Now()
	healing, err := play()
	if err != nil {
		s.err = fmt.Errorf("%s: %w", what, err)
		return
	}
	next := fmt.Sprintf("%.2f s", healing.Next)
	if healing.Next == 0 {
		next = "no other plan"
	}
	fmt.Printf("%-44s %18s %14.2f s %9.2f s %9d\n", what, next, healing.Stall, healing.Usual, healing.Repeated)
	s.acts = append(s.acts, act{what, at, healing})
}

// settle waits until so many workers, or so many, train calmly.
func (s *stage) settle(worlds ...int) {
	if s.err == nil {
		s.err = s.job.SettleFor(s.ctx, limit, settledSteps, worlds...)
	}
}

func (s *stage) hit(fault torch.Fault, worker string) {
	s.perform(fault.Name, func() (torch.Healing, error) { return s.job.Hit(s.ctx, limit, fault, worker) })
}

// join starts a worker. One that was there before has ended first.
func (s *stage) join(what, worker string) {
	if s.err == nil && s.job.Worker(worker) != nil {
		s.settle(len(workers)-1, len(workers)-1-s.idle)
		s.err = errors.Join(s.err, s.job.Await(worker, limit))
	}
	s.perform(what, func() (torch.Healing, error) { return s.job.Join(s.ctx, limit, worker) })
	if worker != newcomer {
		s.settle(len(workers))
	}
}

// thaw lets a worker go on that froze, was given up, and comes back.
func (s *stage) thaw(worker string) {
	s.settle(len(workers) - 1)
	s.perform("it thaws, and comes back", func() (torch.Healing, error) { return s.job.Thaw(s.ctx, limit, worker) })
	s.settle(len(workers))
}
