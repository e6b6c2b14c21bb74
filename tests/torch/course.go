package torch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"
)

// Step is a line that a training script prints after a step.
type Step struct {
	Worker string  `json:"-"`
	Number uint64  `json:"step"` // completed steps
	Loss   float64 `json:"loss"`
	World  int     `json:"world"` // processes that trained it
	Under  uint64  `json:"under"` // generation of the plan or, without plans, id of the process
	Time   float64 `json:"time"`  // seconds of the machine's clock

	// State is what the soak's script tells of its state after the step: how many updates it is of, and a sum each of the parameters,
	// their first and their second moments.
	State []float64 `json:"state,omitempty"`
}

// At is when the step was completed.
func (s Step) At() time.Time { return time.UnixMicro(int64(s.Time * 1e6)) }

// Course is what a job's workers completed, in the order in which it was heard. It may be used by several goroutines.
type Course struct {
	mutex sync.Mutex
	steps []Step
	news  chan struct{} // closed when a step is heard
}

func newCourse() *Course { return &Course{news: make(chan struct{})} }

func (c *Course) add(step Step) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.steps = append(c.steps, step)
	close(c.news)
	c.news = make(chan struct{})
}

// Steps returns what was heard so far.
func (c *Course) Steps() []Step {
	steps, _ := c.heard()
	return steps
}

func (c *Course) heard() ([]Step, <-chan struct{}) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.steps[:len(c.steps):len(c.steps)], c.news
}

// Last returns the last step of a worker; the zero step before its first.
func (c *Course) Last(worker string) Step {
	steps := c.Steps()
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].Worker == worker {
			return steps[i]
		}
	}
	return Step{}
}

// Wait returns when the steps show what is waited for, or an error after so long.
func (c *Course) Wait(ctx context.Context, limit time.Duration, what string, shown func([]Step) bool) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		steps, news := c.heard()
		if shown(steps) {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("%s: expected within %v", what, limit)
		}
	}
}

// listener hears the lines of a worker's output; all but steps goes to a log.
type listener struct {
	worker string
	course *Course
	log    io.Writer
	rest   []byte // of a line whose end has not come
}

func (l *listener) Write(output []byte) (int, error) {
	l.rest = append(l.rest, output...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(output), nil
		}
		l.rest = rest
		step := Step{Worker: l.worker}
		if json.Unmarshal(line, &step) == nil && step.Time > 0 {
			l.course.add(step)
		} else if _, err := fmt.Fprintf(l.log, "%s\n", line); err != nil {
			return 0, err
		}
	}
}

// Losses returns the loss of each step from the first on. Workers that completed the same step must tell the same loss,
// and somebody must tell the loss of each step, or behind the next one that both were made: all may be killed before they tell. The loss of
// such a step is no number.
func Losses(steps []Step) ([]float64, error) {
	if len(steps) == 0 {
		return nil, errors.New("steps: expected some")
	}
	last := slices.MaxFunc(steps, func(a, b Step) int { return int(a.Number) - int(b.Number) })
	losses, known := make([]float64, last.Number), make([]bool, last.Number)
	made := map[uint64]bool{} // steps behind which as many updates were made
	for _, step := range steps {
		i := step.Number - 1
		made[step.Number] = made[step.Number] || len(step.State) > 0 && step.State[0] == float64(step.Number)
		if known[i] && losses[i] != step.Loss {
			return nil, fmt.Errorf("step %d: expected one loss, got %v and, from %s, %v",
				step.Number, losses[i], step.Worker, step.Loss)
		}
		losses[i], known[i] = step.Loss, true
	}
	for i := range losses {
		switch {
		case known[i]:
		case made[uint64(i)+2]:
			losses[i] = math.NaN()
		default:
			return nil, fmt.Errorf("step %d: expected somebody to complete it, and step %d is completed", i+1, last.Number)
		}
	}
	return losses, nil
}
