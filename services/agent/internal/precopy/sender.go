// Package precopy moves units while they are trained: a receiver takes them as they were at some step, and then
// what each step changed in them. All are paused for the last changes only.
package precopy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/internal/transfer"
	"github.com/reknit/reknit/services/agent/shards"
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
	before   <-chan struct{}               // closed when nothing of the exchange before is left: some parts may be alike
	wake     func()                        // tells that a capture may be due
	captured chan *capture                 // to be cut into parts and stored
	held     map[string][]*shards.Offering // by digest: one step may change the same as another. Only Serve uses it

	mutex   sync.Mutex
	newest  uint64             // completed steps, at the last boundary
	clients map[string]*client // by receiver
	news    chan struct{}      // closed, and made anew, when an answer may have changed
	taken   []string           // digests of parts that their receivers have
}

// client is a receiver, and what it is given.
type client struct {
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
		captured: make(chan *capture, capturesMax), held: map[string][]*shards.Offering{},
		newest: done, clients: map[string]*client{}, news: make(chan struct{}),
	}
	for _, moved := range exchange.Migration().Transfers {
		if _, gives := transfer.ShardsOf(exchange.Node().Name, moved); gives && s.clients[moved.To] == nil {
			s.clients[moved.To] = newClient(moved.To)
		}
	}
	return s
}

func newClient(receiver string) *client {
	return &client{receiver: receiver, sizes: map[int]int64{}, left: map[uint64]left{}}
}

// announce wakes who waits for an answer. Called with the mutex held.
func (s *Sender) announce() {
	close(s.news)
	s.news = make(chan struct{})
}

// lose leads a receiver no more: it hears so, and takes its units where all are paused. Called with the mutex held.
func (s *Sender) lose(client *client, reason string) {
	if client.phase != lost {
		slog.Warn("a receiver cannot pre-copy", "node", s.exchange.Node().Name, "receiver", client.receiver, "reason", reason)
	}
	client.phase = lost
	s.announce()
}

// Answer waits for what is asked for. A receiver's request tells what the receiver has.
func (s *Sender) Answer(request events.PreCopyRequest) events.PreCopyReply {
	timer := time.NewTimer(requestWait)
	defer timer.Stop()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	client := s.note(request)
	for {
		if client == nil || !client.serves(request) {
			return events.PreCopyReply{Newest: s.newest, Gone: true}
		}
		if at, there := client.left[request.Step]; there {
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
func (c *client) serves(request events.PreCopyRequest) bool {
	return request.Step >= c.base && (c.phase == led || c.phase == asked && request.Whole)
}

// note takes what a request tells: a receiver that asks for a step has taken the ones before, and one that asks for
// whole units at a later step begins anew. Called with the mutex held.
func (s *Sender) note(request events.PreCopyRequest) *client {
	client := s.clients[request.To]
	if client == nil {
		return nil
	}
	if request.Whole && client.phase >= led && request.Step > client.base {
		s.release(client, request.Step)
		client = newClient(request.To)
		s.clients[request.To] = client
	}
	switch {
	case !request.Whole:
		s.release(client, request.Step)
	case client.phase == unasked || client.phase == asked:
		client.phase, client.base = unasked, request.Step
		if request.Step >= s.newest {
			client.phase = asked
		}
		s.wake() // a trainer that stands at that step can be captured at once
	}
	return client
}

// release notes that what is left before a step can be retired. Called with the mutex held.
func (s *Sender) release(client *client, before uint64) {
	for step, left := range client.left {
		if step >= before {
			continue
		}
		if step != client.base {
			client.waiting -= left.bytes
		}
		for _, unit := range left.units {
			for _, part := range unit.Parts {
				s.taken = append(s.taken, part.Digest)
			}
		}
		delete(client.left, step)
	}
}
