// Package precopy moves units while they are trained: a receiver takes them as they were at some step, and then what each
// step changed in them. All are paused for the last changes only.
package precopy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/internal/transfer"
)

const (
	requestWait = time.Second // that a request waits for its step
	capturesMax = 4           // captures that are not stored yet; beyond that no receiver is led any more
	waitingMax  = 4           // bytes of changes that wait to be taken, in bytes of the units themselves
)

// Sender gives receivers the units at one step, and what each step after it changed in them, until its context ends.
type Sender struct {
	exchange *transfer.Exchange
	context  context.Context
	before   <-chan struct{} // closed when nothing of the exchange before is left: some parts may be alike
	wake     func()          // tells that a capture may be due
	captured chan *capture   // to be cut into parts and stored
	held     map[string]int  // parts stored, by digest: one step may change the same as another. Of Serve alone

	mutex  sync.Mutex
	newest uint64            // completed steps, at the last boundary
	trails map[string]*trail // by receiver
	news   chan struct{}     // closed, and made anew, when an answer may have changed
	taken  []string          // digests of parts that their receivers have
}

// trail is what one receiver is given.
type trail struct {
	receiver string
	phase    phase
	base     uint64        // the step at which it is given whole units
	last     uint64        // the newest step that was captured
	sizes    map[int]int64 // of the units, by unit
	bytes    int64         // that it is given of the units
	waiting  int64         // bytes of changes that it has not taken
	left     map[uint64]left
}

// phase is how far a receiver is led.
type phase int

const (
	unasked phase = iota // it has not asked, or for a step that is over
	asked                // it is to be given whole units at the base
	led                  // it was, and takes the changes
	lost                 // it cannot be led any more
)

// left is what a receiver is given at a step.
type left struct {
	units []events.PreCopied
	bytes int64
}

// NewSender returns a sender whose node has completed so many steps.
func NewSender(
	ctx context.Context, exchange *transfer.Exchange, done uint64, before <-chan struct{}, wake func(),
) *Sender {
	s := &Sender{
		exchange: exchange, context: ctx, before: before, wake: wake,
		captured: make(chan *capture, capturesMax), held: map[string]int{},
		newest: done, trails: map[string]*trail{}, news: make(chan struct{}),
	}
	for _, moved := range exchange.Migration().Transfers {
		if _, gives := transfer.ShardsOf(exchange.Node().Name, moved); gives && s.trails[moved.To] == nil {
			s.trails[moved.To] = newTrail(moved.To)
		}
	}
	return s
}

func newTrail(receiver string) *trail {
	return &trail{receiver: receiver, sizes: map[int]int64{}, left: map[uint64]left{}}
}

// Leads reports whether a receiver takes units while training goes on.
func (s *Sender) Leads(receiver string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	trail := s.trails[receiver]
	return trail != nil && trail.phase == led
}

// announce wakes who waits for an answer. Called with the mutex held.
func (s *Sender) announce() {
	close(s.news)
	s.news = make(chan struct{})
}

// lose ends a trail: its receiver hears so, and takes its units where all are paused. Called with the mutex held.
func (s *Sender) lose(trail *trail, reason string) {
	if trail.phase != lost {
		slog.Warn("a receiver cannot pre-copy", "node", s.exchange.Node().Name, "receiver", trail.receiver, "reason", reason)
	}
	trail.phase = lost
	s.announce()
}

// Answer waits for what is asked for. What a receiver asks for tells what it has.
func (s *Sender) Answer(request events.PreCopyRequest) events.PreCopyReply {
	timer := time.NewTimer(requestWait)
	defer timer.Stop()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	trail := s.note(request)
	for {
		if trail == nil || !trail.serves(request) {
			return events.PreCopyReply{Newest: s.newest, Gone: true}
		}
		if at, there := trail.left[request.Step]; there {
			return events.PreCopyReply{Newest: s.newest, Units: at.units}
		}
		news := s.news
		s.mutex.Unlock()
		late := false
		select {
		case <-news:
		case <-timer.C:
			late = true
		case <-s.context.Done():
			late = true
		}
		s.mutex.Lock()
		if late {
			return events.PreCopyReply{Newest: s.newest}
		}
	}
}

// serves reports whether what is asked for is there, or will be.
func (t *trail) serves(request events.PreCopyRequest) bool {
	return request.Step >= t.base && (t.phase == led || t.phase == asked && request.Whole)
}

// note takes what a request tells: a receiver that asks for a step has taken the ones before, and one that asks for whole units
// at a later step begins anew. Called with the mutex held.
func (s *Sender) note(request events.PreCopyRequest) *trail {
	trail := s.trails[request.To]
	if trail == nil {
		return nil
	}
	if request.Whole && trail.phase >= led && request.Step > trail.base {
		s.release(trail, request.Step)
		trail = newTrail(request.To)
		s.trails[request.To] = trail
	}
	switch {
	case !request.Whole:
		s.release(trail, request.Step)
	case trail.phase == unasked || trail.phase == asked:
		trail.phase, trail.base = unasked, request.Step
		if request.Step >= s.newest {
			trail.phase = asked
		}
		s.wake() // a trainer that stands at that step can be captured at once
	}
	return trail
}

// release notes that what is left before a step can be retired. Called with the mutex held.
func (s *Sender) release(trail *trail, before uint64) {
	for step, left := range trail.left {
		if step >= before {
			continue
		}
		if step != trail.base {
			trail.waiting -= left.bytes
		}
		for _, unit := range left.units {
			for _, part := range unit.Parts {
				s.taken = append(s.taken, part.Digest)
			}
		}
		delete(trail.left, step)
	}
}
