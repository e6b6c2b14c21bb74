package world

import "time"

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
	c.due.push(deed{at: c.now + max(wait, 0), order: c.asked, do: do})
}

// run does what is due until a time.
func (c *clock) run(until time.Duration) {
	for len(c.due) > 0 && c.due[0].at <= until {
		next := c.due.pop()
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

func (d deed) before(other deed) bool {
	return d.at < other.at || d.at == other.at && d.order < other.order
}

// queue is a heap of four children each. A thousand nodes have some ten thousand deeds due, and seven million heartbeats
// an hour pass through it: container/heap took a twentieth of such a run.
type queue []deed

const children = 4

func (q *queue) push(added deed) {
	*q = append(*q, added)
	heap, at := *q, len(*q)-1
	for at > 0 {
		parent := (at - 1) / children
		if !added.before(heap[parent]) {
			break
		}
		heap[at], at = heap[parent], parent
	}
	heap[at] = added
}

func (q *queue) pop() deed {
	heap := *q
	first, last := heap[0], heap[len(heap)-1]
	heap[len(heap)-1] = deed{}
	heap = heap[:len(heap)-1]
	*q = heap
	for at := 0; at < len(heap); {
		least := at
		for child := children*at + 1; child <= children*at+children && child < len(heap); child++ {
			if least == at && heap[child].before(last) || least != at && heap[child].before(heap[least]) {
				least = child
			}
		}
		if heap[at] = last; least == at {
			break
		}
		heap[at], at = heap[least], least
	}
	return first
}
