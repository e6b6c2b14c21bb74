package world

import (
	"container/heap"
	"time"
)

// clock is virtual time: what is to happen, in the order of time, and at one time in the order it was asked for.
type clock struct {
	now   time.Duration // since the epoch
	asked uint64
	due   queue
}

// epoch is when every run begins, by the clock of the log.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (c *clock) time() time.Time { return epoch.Add(c.now) }

// after has something done once so much time has passed.
func (c *clock) after(wait time.Duration, do func()) {
	c.asked++
	heap.Push(&c.due, &deed{at: c.now + max(wait, 0), order: c.asked, do: do})
}

// run does what is due until a time.
func (c *clock) run(until time.Duration) {
	for len(c.due) > 0 && c.due[0].at <= until {
		next := heap.Pop(&c.due).(*deed)
		c.now = next.at
		next.do()
	}
	c.now = until
}

type deed struct {
	at    time.Duration
	order uint64
	do    func()
}

type queue []*deed

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*deed)) }

func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	next := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return next
}
