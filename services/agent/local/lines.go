package local

import (
	"time"

	"github.com/reknit/reknit/events"
)

// Abort is a line of the session stream.
type Abort struct {
	Abort  uint64 `json:"abort"`
	Reason string `json:"reason"`
}

// Waits is a line of the session stream: why training waits, or without a reason that it goes on.
type Waits struct {
	Waits  string    `json:"waits"`
	Awaits []string  `json:"awaits,omitempty"`
	Since  time.Time `json:"since"`
}

// Late is a line of the session stream: why the others cannot do without the trainer by the deadline of its leave, for
// how long they need it, and which units nobody else holds.
type Late struct {
	Late    string         `json:"late"`
	Seconds float64        `json:"seconds"`
	Alone   []events.Range `json:"alone"`
}

// Leaving is a line of the session stream: the trainer's node is to go, and why.
type Leaving struct {
	Leaving string `json:"leaving"`
}

// abort tells the trainer, on both ways, that a step is to be given up.
func (t *trainer) abort(id uint64) {
	t.state.abort(id)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	replace(t.aborts, Abort{Abort: id, Reason: "the cluster gives the step up"})
}

// wait tells the trainer why training waits. The session calls it, once at a time.
func (t *trainer) wait(reason string, awaits []string, since time.Time) {
	replace(t.waits, Waits{Waits: reason, Awaits: awaits, Since: since})
}

// late tells the trainer that it cannot leave in time. The session calls it, once at a time.
func (t *trainer) late(reason string, seconds float64, alone []events.Range) {
	replace(t.lates, Late{Late: reason, Seconds: seconds, Alone: alone})
}

// leave asks for the trainer's node to go, as its agent was asked, and tells the trainer.
func (t *trainer) leave(wish *leave) {
	t.leaving(wish.Reason)
	t.session.Leave(wish.Reason, seconds(wish.DeadlineSeconds))
}

// leaving tells the trainer that its node is to go, as somebody else asked. The session and the server call it.
func (t *trainer) leaving(reason string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	replace(t.leavings, Leaving{reason})
}

// replace puts a line where the last one may stand that was not told yet. One goroutine at a time does it.
func replace[T any](lines chan T, line T) {
	select {
	case <-lines:
	default:
	}
	lines <- line
}
