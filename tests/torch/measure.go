package torch

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Healing is what a fault cost those who train on.
type Healing struct {
	Next     float64 // seconds until the last of them, and of those who join, completed a step after it; 0: no other plan
	Stall    float64 // longest time between two steps of one of them, less a usual step
	Usual    float64 // seconds of a step before
	Repeated int     // steps that were trained again
}

// usualSteps is how many of the last steps tell what is usual.
const usualSteps = 10

// watch is about what a change costs workers that train before and after it, and about when those train who join.
type watch struct {
	course   *Course
	standing []string
	joining  []string
	past     func(before, step Step) bool // whether a step shows that its worker is past the change
}

// anew tells a step under another plan, or of another process, than before.
func anew(before, step Step) bool { return step.Under != before.Under }

// cost changes something, and returns what it cost until all workers are past it.
func (w watch) cost(ctx context.Context, limit time.Duration, change func() error) (Healing, error) {
	workers := append(slices.Clone(w.standing), w.joining...)
	before := map[string]Step{}
	for _, worker := range workers {
		before[worker] = w.course.Last(worker)
	}
	healing := Healing{Usual: Usual(w.course.Steps())}
	at := time.Now()
	if err := change(); err != nil {
		return healing, err
	}
	past := func(step Step) bool {
		return slices.Contains(workers, step.Worker) && step.At().After(at) && w.past(before[step.Worker], step)
	}
	what := fmt.Sprintf("a step of each of %v after the change", workers)
	err := w.course.Wait(ctx, limit, what, func(steps []Step) bool {
		return w.passed(slices.DeleteFunc(slices.Clone(steps), func(step Step) bool { return !past(step) }))
	})
	for _, worker := range workers {
		healing.add(w.course.Steps(), worker, at, past, slices.Contains(w.standing, worker))
	}
	return healing, err
}

// passed reports whether steps past the change are of all workers. The workers that train together are enough if nobody
// joins: a plan may leave one out of a pipeline.
func (w watch) passed(steps []Step) bool {
	all, together := map[string]bool{}, map[int]map[string]bool{} // those by the world of their steps
	for _, step := range steps {
		if together[step.World] == nil {
			together[step.World] = map[string]bool{}
		}
		all[step.Worker], together[step.World][step.Worker] = true, true
		if len(w.joining) == 0 && len(together[step.World]) == step.World {
			return true
		}
	}
	return len(all) == len(w.standing)+len(w.joining)
}

// add counts what it cost a worker. Only the first step of a worker that joins counts.
func (h *Healing) add(steps []Step, worker string, at time.Time, past func(Step) bool, standing bool) {
	var last Step
	for _, step := range steps {
		if step.Worker != worker {
			continue
		}
		if standing && last.Time > 0 && step.At().After(at) {
			h.Stall = max(h.Stall, step.Time-last.Time-h.Usual)
			h.Repeated = max(h.Repeated, int(last.Number)-int(step.Number)+1)
		}
		if past(step) {
			h.Next = max(h.Next, step.At().Sub(at).Seconds())
			return
		}
		last = step
	}
}

// Usual is the median of the seconds between two steps of a worker, of the last ones.
func Usual(steps []Step) float64 {
	var seconds []float64
	next := map[string]Step{}
	for _, step := range slices.Backward(steps) {
		if later, known := next[step.Worker]; known && later.Under == step.Under {
			seconds = append(seconds, later.Time-step.Time)
		}
		if next[step.Worker] = step; len(seconds) == usualSteps*len(next) {
			break
		}
	}
	return Median(seconds)
}

// Median of some numbers; 0 of none.
func Median(numbers []float64) float64 {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
