// Package torch runs the PyTorch examples as processes of this machine, under Reknit and under torchrun, has failures
// strike them, and watches which steps they complete when.
package torch

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// Scripts: Soak of the folder soak, the others of services/agent/examples/pytorch. DDP knows nothing of Reknit.
const (
	Elastic  = "elastic.py"
	Pipeline = "pipeline.py"
	DDP      = "ddp.py"
	Soak     = "soak.py"
)

// Job is a training: workers that were started, and what they complete.
type Job struct {
	Course  *Course
	logs    string
	command func(worker string) *exec.Cmd
	spared  []int // ports of connections that are no collective's
	workers map[string]*Worker
	plane   *plane // of a job under Reknit
}

func newJob(logs string, command func(worker string) *exec.Cmd, spared ...int) *Job {
	return &Job{Course: newCourse(), logs: logs, command: command, spared: spared, workers: map[string]*Worker{}}
}

// Start starts a worker, which joins.
func (j *Job) Start(name string) error {
	if old := j.workers[name]; old != nil {
		select {
		case <-old.ended:
		default:
			return fmt.Errorf("%s runs already", name)
		}
	}
	worker, err := startWorker(name, j.command(name), j.Course, j.logs)
	if err != nil {
		return err
	}
	worker.spared = j.spared
	j.workers[name] = worker
	return nil
}

// Worker returns a worker that was started.
func (j *Job) Worker(name string) *Worker { return j.workers[name] }

// Running returns the names of the workers whose parent process lives, in order.
func (j *Job) Running() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(j.workers)) {
		select {
		case <-j.workers[name].ended:
		default:
			names = append(names, name)
		}
	}
	return names
}

// Await returns when a worker's parent process has ended.
func (j *Job) Await(name string, limit time.Duration) error {
	select {
	case <-j.workers[name].ended:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s: expected its end within %v", name, limit)
	}
}

// Close ends all processes.
func (j *Job) Close() {
	for _, name := range j.Running() {
		_ = j.workers[name].SignalAll(syscall.SIGKILL) // some may have ended meanwhile
	}
	for _, worker := range j.workers {
		<-worker.ended // which pipeWait bounds
	}
	if j.plane != nil {
		j.plane.close()
	}
}
