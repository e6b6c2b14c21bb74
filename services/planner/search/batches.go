package search

import (
	"container/heap"
	"math"
	"slices"
)

// OptimalBatches distributes the total so that the slowest pipeline is as fast as possible, at least one micro-batch
// each. seconds(j, b) is pipeline j's time for b micro-batches and must not fall with b; each micro-batch then goes
// where it ends earliest. A few calls for each pipeline are enough if times grow about evenly; O(total) calls
// otherwise, and O(total log pipelines) time.
func OptimalBatches(total, pipelines int, seconds func(pipeline, microBatches int) float64) []int {
	if some := nearlyAll(total, pipelines, seconds); some != nil {
		if batches, next := dealt(total, some, seconds); allBefore(next, some, seconds) {
			return batches
		}
	}
	batches, _ := dealt(total, slices.Repeat([]int{1}, pipelines), seconds)
	return batches
}

// dealt gives the micro-batches beyond some to where they end earliest, and returns where one more would go.
func dealt(total int, some []int, seconds func(pipeline, microBatches int) float64) (batches []int, next finish) {
	batches = slices.Clone(some)
	queue, left := make(earliest, len(batches)), total
	for j := range batches {
		queue[j] = finish{seconds(j, batches[j]+1), j}
		left -= batches[j]
	}
	heap.Init(&queue)
	for range left {
		j := queue[0].pipeline
		batches[j]++
		queue[0].seconds = seconds(j, batches[j]+1)
		heap.Fix(&queue, 0)
	}
	return batches, queue[0]
}

// nearlyAll is a little less than what each pipeline would take of the total, if its time grew evenly; nil where that is
// hardly anything.
func nearlyAll(total, pipelines int, seconds func(pipeline, microBatches int) float64) []int {
	const short = 2 // so many less
	mean := total / pipelines
	if mean <= 2*short {
		return nil
	}
	first, rate, all, rates := make([]float64, pipelines), make([]float64, pipelines), float64(total-pipelines), 0.0
	for j := range pipelines {
		first[j] = seconds(j, 1)
		rate[j] = float64(mean-1) / (seconds(j, mean) - first[j])
		all += first[j] * rate[j]
		rates += rate[j]
	}
	level := all / rates // when all would end at one time
	batches, left := make([]int, pipelines), total
	for j := range batches {
		share := math.Floor(1 + (level-first[j])*rate[j])
		if !(share <= float64(total)) {
			return nil
		}
		batches[j] = max(1, int(share)-short)
		left -= batches[j]
	}
	if left < 0 {
		return nil
	}
	return batches
}

// allBefore reports whether all that was given ends before the next that would be.
func allBefore(next finish, given []int, seconds func(pipeline, microBatches int) float64) bool {
	for j, batches := range given {
		if batches > 1 && !(finish{seconds(j, batches), j}).before(next) {
			return false
		}
	}
	return true
}

// finish is when a pipeline would end with one micro-batch more.
type finish struct {
	seconds  float64
	pipeline int
}

func (f finish) before(other finish) bool {
	if f.seconds != other.seconds {
		return f.seconds < other.seconds
	}
	return f.pipeline < other.pipeline
}

type earliest []finish

func (q earliest) Len() int           { return len(q) }
func (q earliest) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q earliest) Push(any)           { panic("the queue has a fixed size") }
func (q earliest) Pop() any           { panic("the queue has a fixed size") }
func (q earliest) Less(i, j int) bool { return q[i].before(q[j]) }
