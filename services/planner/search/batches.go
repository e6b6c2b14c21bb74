package search

import "container/heap"

// OptimalBatches distributes the total so that the slowest pipeline is as fast as possible, at least one micro-batch
// each. seconds(j, b) is pipeline j's time for b micro-batches and must not fall with b; each micro-batch then goes
// where it ends earliest. O(total log pipelines) calls.
func OptimalBatches(total, pipelines int, seconds func(pipeline, microBatches int) float64) []int {
	batches, queue := make([]int, pipelines), make(earliest, pipelines)
	for j := range batches {
		batches[j] = 1
		queue[j] = finish{seconds(j, 2), j}
	}
	heap.Init(&queue)
	for range total - pipelines {
		j := queue[0].pipeline
		batches[j]++
		queue[0].seconds = seconds(j, batches[j]+1)
		heap.Fix(&queue, 0)
	}
	return batches
}

// finish is when a pipeline would end with one micro-batch more.
type finish struct {
	seconds  float64
	pipeline int
}

type earliest []finish

func (q earliest) Len() int      { return len(q) }
func (q earliest) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q earliest) Push(any)      { panic("the queue has a fixed size") }
func (q earliest) Pop() any      { panic("the queue has a fixed size") }
func (q earliest) Less(i, j int) bool {
	if q[i].seconds != q[j].seconds {
		return q[i].seconds < q[j].seconds
	}
	return q[i].pipeline < q[j].pipeline
}
