package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/tests/torch"
)

// failure is one kind of what may go wrong.
type failure struct {
	name   string
	strike func(s *stage, worker string) error
	told   []string // kinds of changes: history names the worker in one of them; nil where nobody needs to change anything
}

var (
	lost = []string{events.ChangeFailure, events.ChangeBroken}
	left = []string{events.ChangeLeave}
)

// Others go on if a script computes for so long, or if NATS is away.
const (
	hang     = "3600"
	evaluate = "8"
	away     = 3 * time.Second

	mostBetween = 500 * time.Millisecond // two kills: a plan that does without a node comes about then
)

// failures are all kinds.
var failures = []failure{
	{"a script is killed", hit(torch.KillTrainer), lost},
	{"an agent is killed", hit(torch.KillAgent), lost},
	{"a node is killed", hit(torch.KillNode), lost},
	{"a node leaves", hit(torch.Leave), left},
	{"a collective breaks", hit(torch.Break), nil},
	{"a node freezes and thaws", (*stage).freeze, lost},
	{"a script raises before its micro-batches", order("begin", "raise"), lost},
	{"a script raises in a micro-batch", order("micro-batch", "raise"), lost},
	{"a script raises in a hook of the backward pass", order("hook", "raise"), lost},
	{"a script raises before its commit", order("commit", "raise"), lost},
	{"a script raises behind its commit", order("made", "raise"), lost},
	{"a script ends with a status", order("begin", "exit", "3"), lost},
	{"a script hangs before its micro-batches", hangBetween("begin"), lost},
	{"a script hangs in a micro-batch", order("micro-batch", "sleep", hang), lost},
	{"a script hangs in a hook of the backward pass", order("hook", "sleep", hang), lost},
	{"a script hangs before its commit", hangBetween("commit"), lost},
	{"a script evaluates behind its commit", order("made", "sleep", evaluate), nil},
	{"a node is killed while another evaluates", (*stage).killWhileOtherEvaluates, lost},
	{"a script has another learning rate", order("commit", "settings"), lost},
	{"a script changes a parameter in its step", order("commit", "touch"), lost},
	{"a sample is poisoned", (*stage).poison, nil},
	{"all scripts are killed at once", (*stage).killAllScripts, nil},
	{"two scripts are killed at once", (*stage).killTwo, lost},
	{"nodes are killed one after the other until one is left", (*stage).killAllButOne, lost},
	{"a service is killed", func(s *stage, _ string) error { return s.job.KillService(pick(s.random, processes.Services)) }, nil},
	{"NATS is away", func(s *stage, _ string) error { return s.job.RestartNATS(away, false) }, nil},
	{"NATS loses its store", (*stage).loseStore, nil},
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// hit is a failure that a signal brings about.
func hit(fault torch.Fault) func(*stage, string) error {
	return func(s *stage, worker string) error { return fault.Strike(s.job.Worker(worker)) }
}

// order has a worker's script misbehave: soak.py has the places and deeds.
func order(words ...string) func(*stage, string) error {
	return func(s *stage, worker string) error { return s.order(worker, words...) }
}

func (s *stage) order(worker string, words ...string) error {
	text := ""
	for _, word := range words {
		text += word + " "
	}
	path := filepath.Join(s.orders, worker)
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil { // whole, or not at all
		return err
	}
	return s.until(fmt.Sprintf("%s does as it is told: %s", worker, text), func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	})
}

// hangBetween has a script hang where it may evaluate as well: the others wait for it, and the log is to name it soon. The soak reads
// that, and starts the script again.
func hangBetween(place string) func(*stage, string) error {
	return func(s *stage, worker string) error {
		if err := s.order(worker, place, "sleep", hang); err != nil {
			return err
		}
		if err := s.delayed(worker); err != nil {
			return err
		}
		return torch.KillTrainer.Strike(s.job.Worker(worker))
	}
}

// loseStore returns once training goes on under a plan of the new log.
func (s *stage) loseStore(string) error {
	if err := s.job.RestartNATS(away, true); err != nil {
		return err
	}
	return s.until("there is another plan", func() bool {
		steps := s.job.Course.Steps()
		return steps[len(steps)-1].Under > s.seen
	})
}

// freeze thaws a node once it is given up: how long that takes is the detector's, which has learnt of earlier freezes.
func (s *stage) freeze(worker string) error {
	if err := s.job.Worker(worker).SignalAll(syscall.SIGSTOP); err != nil {
		return err
	}
	err := s.until("the others go on without a frozen node", func() bool {
		steps := s.job.Course.Steps()
		return steps[len(steps)-1].World < world
	})
	return errors.Join(err, s.job.Worker(worker).SignalAll(syscall.SIGCONT))
}

func (s *stage) other(worker string) string {
	for {
		if other := pick(s.random, s.job.Running()); other != worker {
			return other
		}
	}
}

func (s *stage) killWhileOtherEvaluates(worker string) error {
	if err := s.order(s.other(worker), "made", "sleep", evaluate); err != nil {
		return err
	}
	return torch.KillNode.Strike(s.job.Worker(worker))
}

func (s *stage) killTwo(worker string) error {
	other := s.other(worker)
	if err := torch.KillTrainer.Strike(s.job.Worker(worker)); err != nil {
		return err
	}
	return torch.KillTrainer.Strike(s.job.Worker(other))
}

// killAllButOne kills a worker's node and then others while the cluster goes on without the one before, or is about to.
func (s *stage) killAllButOne(worker string) error {
	others := slices.DeleteFunc(s.job.Running(), func(name string) bool { return name == worker })
	s.random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	for _, name := range append([]string{worker}, others[1:]...) {
		if err := torch.KillNode.Strike(s.job.Worker(name)); err != nil {
			return err
		}
		if err := s.wait(time.Duration(s.random.Int64N(int64(mostBetween)))); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) killAllScripts(string) error {
	for _, name := range s.job.Running() {
		if err := torch.KillTrainer.Strike(s.job.Worker(name)); err != nil {
			return err
		}
	}
	return nil
}

// batch is how many samples a step of soak.py has.
const batch = 12

// poison has a sample that nobody can read come soon, until it is read again a while after the first script ended by it.
func (s *stage) poison(string) error {
	steps := s.job.Course.Steps()
	sample := (steps[len(steps)-1].Number+20)*batch + 3
	path := filepath.Join(s.orders, "poison")
	if err := os.WriteFile(path, fmt.Append(nil, sample), 0o644); err != nil {
		return err
	}
	if err := errors.Join(s.wait(poisoned), os.Remove(path)); err != nil {
		return err
	}
	return s.retry()
}

// retry has a step tried again that is held, as whoever mended its samples does. None may be: the last script did not come to them.
func (s *stage) retry() error {
	command := exec.CommandContext(s.ctx, s.reknit, "step", "retry", "--nats", s.job.URL(), "--cluster", torch.Cluster)
	output, err := command.CombinedOutput()
	if err != nil && (command.ProcessState == nil || command.ProcessState.ExitCode() != 1) {
		return fmt.Errorf("reknit step retry: %w: %s", err, output)
	}
	return nil
}
