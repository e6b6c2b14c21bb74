package torch

import (
	"context"
	"slices"
	"syscall"
	"time"
)

// Fault is something that happens to a worker.
type Fault struct {
	Name   string
	Strike func(*Worker) error
	Stays  bool // the worker trains on, too
	Ends   bool // its processes end by it
}

// The faults, in the order of how much a job under torchrun survives them.
var (
	KillNode = Fault{Name: "kill -9 of a node", Ends: true, Strike: func(w *Worker) error {
		return w.SignalAll(syscall.SIGKILL)
	}}
	KillTrainer = Fault{Name: "kill -9 of a training process", Strike: func(w *Worker) error {
		return w.SignalTrainer(syscall.SIGKILL)
	}}
	KillAgent = Fault{Name: "kill -9 of an agent", Ends: true, Strike: func(w *Worker) error {
		return w.Signal(syscall.SIGKILL)
	}}
	Leave = Fault{Name: "a node leaves (SIGTERM)", Ends: true, Strike: func(w *Worker) error {
		return w.Signal(syscall.SIGTERM)
	}}
	Break  = Fault{Name: "a collective breaks, all live", Stays: true, Strike: (*Worker).BreakCollective}
	Freeze = Fault{Name: "a node freezes (SIGSTOP)", Strike: func(w *Worker) error {
		return w.SignalAll(syscall.SIGSTOP)
	}}
)

// settledSteps are completed by all before the next fault.
const settledSteps = 10

// Settle returns when so many workers train, or so many, and have for some steps.
func (j *Job) Settle(ctx context.Context, limit time.Duration, worlds ...int) error {
	return j.SettleFor(ctx, limit, settledSteps, worlds...)
}

// SettleFor returns when so many workers train, or so many, and each has for so many steps.
func (j *Job) SettleFor(ctx context.Context, limit time.Duration, least int, worlds ...int) error {
	return j.Course.Wait(ctx, limit, "a job that is calm", func(steps []Step) bool {
		calm := map[string]int{} // by worker: steps in the newest world
		world := 0
		for _, step := range slices.Backward(steps) {
			if world == 0 && slices.Contains(worlds, step.World) {
				world = step.World
			}
			if step.World != world {
				break
			}
			calm[step.Worker]++
		}
		settled := 0
		for _, count := range calm {
			if count >= least {
				settled++
			}
		}
		return world > 0 && settled == world
	})
}

// Hit has a fault strike a worker, and returns what it cost those who train on.
func (j *Job) Hit(ctx context.Context, limit time.Duration, fault Fault, name string) (Healing, error) {
	training := j.training()
	if !fault.Stays {
		training = slices.DeleteFunc(training, func(worker string) bool { return worker == name })
	}
	worker := j.workers[name]
	return watch{j.Course, training, nil, anew}.cost(ctx, limit, func() error { return fault.Strike(worker) })
}

// Join starts a worker, and returns what it cost the others until it has completed a step with them.
func (j *Job) Join(ctx context.Context, limit time.Duration, name string) (Healing, error) {
	return j.come(ctx, limit, name, func() error { return j.Start(name) })
}

// Thaw lets a frozen worker go on, and returns what it cost the others until it has completed a step with them.
func (j *Job) Thaw(ctx context.Context, limit time.Duration, name string) (Healing, error) {
	return j.come(ctx, limit, name, func() error { return j.workers[name].SignalAll(syscall.SIGCONT) })
}

func (j *Job) come(ctx context.Context, limit time.Duration, name string, bring func() error) (Healing, error) {
	return watch{j.Course, j.training(), []string{name}, anew}.cost(ctx, limit, bring)
}

// watchedSteps are completed by all after something that changes no plan.
const watchedSteps = 20

// Watch does something that changes no plan, and returns how long its workers stood in the steps that follow.
func (j *Job) Watch(ctx context.Context, limit time.Duration, strike func() error) (Healing, error) {
	some := func(before, step Step) bool { return step.Number >= before.Number+watchedSteps }
	healing, err := watch{j.Course, j.training(), nil, some}.cost(ctx, limit, strike)
	healing.Next = 0
	return healing, err
}

// training returns the workers that trained the last step.
func (j *Job) training() []string {
	var workers []string
	steps := j.Course.Steps()
	for _, step := range slices.Backward(steps) {
		if len(workers) == steps[len(steps)-1].World {
			break
		}
		if !slices.Contains(workers, step.Worker) {
			workers = append(workers, step.Worker)
		}
	}
	return workers
}
