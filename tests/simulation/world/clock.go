package world

import "time"

// clock is virtual time: what is to happen, in the order of time, and at one time in the order it was asked for.
type clock struct {
	now   time.Duration // since the epoch
	asked uint64
	soon  queue // within a tenth of a second
	due   queue
	beats line // of those that come again
}

// epoch is when every run begins, by the clock of the log.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (c *clock) time() time.Time { return epoch.Add(c.now) }

// after has something done once so much time has passed.
func (c *clock) after(wait time.Duration, do func()) {
	c.asked++
	asked := deed{at: c.now + max(wait, 0), order: c.asked, do: do}
	switch {
	case wait == pulseEvery:
		c.beats.push(asked)
	case wait < soon:
		c.soon.push(asked)
	default:
		c.due.push(asked)
	}
}

// soon is within what time messages arrive. A thousand nodes have few such messages at a time, and thousands of timers.
const soon = 100 * time.Millisecond

// run does what is due until a time.
func (c *clock) run(until time.Duration) {
	for {
		first := earlier(earlier(c.soon.first(), c.due.first()), c.beats.first())
		if first == nil || first.at > until {
			break
		}
		c.now = first.at
		c.pop(first).do()
	}
	c.now = until
}

// pop takes the first deed of the one that it is the first of.
func (c *clock) pop(first *deed) deed {
	switch first {
	case c.beats.first():
		return c.beats.pop()
	case c.soon.first():
		return c.soon.pop()
	}
	return c.due.pop()
}

// earlier returns the earlier of two deeds, of which there may be none.
func earlier(a, b *deed) *deed {
	if a == nil || b != nil && b.before(*a) {
		return b
	}
	return a
}

type deed struct {
	at    time.Duration
	order uint64
	do    func()
}

func (d deed) before(other deed) bool {
	return d.at < other.at || d.at == other.at && d.order < other.order
}

// line is what comes after one and the same wait, and so in the order it was asked for.
type line struct {
	deeds []deed
	gone  int
}

func (l *line) push(added deed) { l.deeds = append(l.deeds, added) }

func (l *line) first() *deed {
	if l.gone == len(l.deeds) {
		return nil
	}
	return &l.deeds[l.gone]
}

func (l *line) pop() deed {
	first := l.deeds[l.gone]
	l.deeds[l.gone] = deed{}
	if l.gone++; 2*l.gone > len(l.deeds) {
		l.deeds, l.gone = append(l.deeds[:0], l.deeds[l.gone:]...), 0
	}
	return first
}

// queue is a heap of four children each. A thousand nodes have some ten thousand deeds due, and seven million heartbeats
// an hour pass through the clock: container/heap took a twentieth of such a run.
type queue []deed

func (q queue) first() *deed {
	if len(q) == 0 {
		return nil
	}
	return &q[0]
}

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
