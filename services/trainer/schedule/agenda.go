package schedule

import "fmt"

// Task is one pass of one micro-batch through one stage of its route.
type Task struct {
	MicroBatch int
	Hop        int // index in the micro-batch's route
	Backward   bool
}

// Agenda is the order of a node's tasks in one step: one-forward-one-backward as a data flow. A backward pass runs as
// soon as its input is there, since it frees memory. A forward pass runs while fewer micro-batches are in flight
// here, with the same number of stages to go (this one included), than that number.
//
// For equal pipelines that is 1F1B's memory bound, min(micro-batches, stages - stage). Rerouted micro-batches share
// it. It cannot deadlock: by induction over the stages to go, every forward pass with one stage to go ends in its own
// backward pass at once, and every one with more waits only for those with fewer.
type Agenda struct {
	node     string
	routes   []Route
	left     int
	forward  []Task // whose input is there, lowest micro-batch first
	backward []Task
	pending  map[Task]bool // not yet ready
	inFlight map[int]int   // by stages to go
}

// NewAgenda returns a node's tasks in a step. Those of the first stage of a route need no input and are ready.
func NewAgenda(routes []Route, node string) *Agenda {
	a := &Agenda{node: node, routes: routes, pending: map[Task]bool{}, inFlight: map[int]int{}}
	for microBatch, route := range routes {
		for hop, stage := range route {
			if stage.Node != node {
				continue
			}
			a.pending[Task{microBatch, hop, false}] = true
			a.pending[Task{microBatch, hop, true}] = true
			a.left += 2
			if hop == 0 {
				a.ready(Task{microBatch, hop, false})
			}
		}
	}
	return a
}

// Left is how many tasks have not been taken.
func (a *Agenda) Left() int { return a.left }

// Arrived says that a task's input is there. A task that is not this node's, and one whose input was there already
// or that needs none, are errors.
func (a *Agenda) Arrived(task Task) error {
	if !a.pending[task] || task.Backward && task.Hop == len(a.routes[task.MicroBatch])-1 {
		return fmt.Errorf("input for %+v: expected one that node %q still waits for", task, a.node)
	}
	a.ready(task)
	return nil
}

func (a *Agenda) ready(task Task) {
	delete(a.pending, task)
	if task.Backward {
		a.backward = insert(a.backward, task)
	} else {
		a.forward = insert(a.forward, task)
	}
}

// insert keeps the tasks in order of micro-batch and stage.
func insert(tasks []Task, task Task) []Task {
	tasks = append(tasks, task)
	for i := len(tasks) - 1; i > 0 && before(tasks[i], tasks[i-1]); i-- {
		tasks[i], tasks[i-1] = tasks[i-1], tasks[i]
	}
	return tasks
}

func before(a, b Task) bool {
	return a.MicroBatch < b.MicroBatch || a.MicroBatch == b.MicroBatch && a.Hop < b.Hop
}

// Next takes the task to run now; ok is false while every one left waits for input or for another to end. The caller
// runs tasks one after another: taking the forward pass of a route's last stage makes its backward pass ready.
func (a *Agenda) Next() (task Task, ok bool) {
	if len(a.backward) > 0 {
		task, a.backward = a.backward[0], a.backward[1:]
		a.inFlight[a.stagesToGo(task)]--
		a.left--
		return task, true
	}
	for i, task := range a.forward {
		toGo := a.stagesToGo(task)
		if a.inFlight[toGo] >= toGo {
			continue
		}
		a.forward = append(a.forward[:i], a.forward[i+1:]...)
		a.inFlight[toGo]++
		a.left--
		if toGo == 1 {
			a.ready(Task{task.MicroBatch, task.Hop, true})
		}
		return task, true
	}
	return Task{}, false
}

func (a *Agenda) stagesToGo(task Task) int {
	return len(a.routes[task.MicroBatch]) - task.Hop
}
