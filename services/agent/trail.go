package agent

import (
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

const (
	followWait   = time.Second // that a request waits for its step
	leftAtOnce   = 4           // steps that are not stored yet; beyond that nobody is led any more
	mostTrailing = 4           // bytes of changes that wait to be taken, in bytes of the layers themselves
)

// trail is what a node leaves to those who follow the layers that it gives: the layers at one step, and what each step after it
// changed in them.
type trail struct {
	*moves
	left chan *exported // to be cut into parts and stored
	held map[string]int // parts stored, by digest: one step may change the same as another. Of run alone

	mutex  sync.Mutex
	newest uint64              // completed steps, at the last boundary
	trails map[string]*trailOf // by receiver
	news   chan struct{}       // closed, and made anew, when an answer may have changed
	taken  []string            // digests of parts that their receivers have
}

// trailOf is what one receiver is left.
type trailOf struct {
	receiver string
	asked    bool   // for the layers
	base     uint64 // at this step
	begun    bool   // they were exported
	lost     bool   // it cannot be led any more
	last     uint64 // the newest step that was exported
	sizes    map[int]int64
	bytes    int64 // that it is given of the layers
	waiting  int64 // bytes of changes that it has not taken
	left     map[uint64]leftAt
}

// leftAt is what is left at a step.
type leftAt struct {
	layers []events.PreCopied
	bytes  int64
}

func newTrail(t *moves, done uint64) *trail {
	l := &trail{
		moves: t, left: make(chan *exported, leftAtOnce), held: map[string]int{},
		newest: done, trails: map[string]*trailOf{}, news: make(chan struct{}),
	}
	for _, transfer := range t.Plan.Migration.Transfers {
		if _, gives := rangeOf(t.config.Node, transfer); gives && l.trails[transfer.To] == nil {
			l.trails[transfer.To] = newTrailOf(transfer.To)
		}
	}
	return l
}

func newTrailOf(receiver string) *trailOf {
	return &trailOf{receiver: receiver, sizes: map[int]int64{}, left: map[uint64]leftAt{}}
}

// leads reports whether a receiver follows.
func (l *trail) leads(receiver string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	of := l.trails[receiver]
	return of != nil && of.begun && !of.lost
}

// due reports whether there is something to export after so many steps.
func (l *trail) due(done uint64) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if done != l.newest {
		return true
	}
	for _, of := range l.trails {
		if of.asked && !of.begun && of.base == done {
			return true
		}
	}
	return false
}

// tell wakes who waits for an answer.
func (l *trail) tell() {
	close(l.news)
	l.news = make(chan struct{})
}

// lose ends a trail: its receiver hears so, and takes its layers where all stand.
func (l *trail) lose(of *trailOf, reason string) {
	if !of.lost {
		slog.Warn("a receiver cannot follow", "node", l.config.Node, "receiver", of.receiver, "reason", reason)
	}
	of.lost = true
	l.tell()
}

// answer waits for what is asked for. What a receiver asks for tells what it has.
func (l *trail) answer(request events.PreCopyRequest) events.PreCopyReply {
	timer := time.NewTimer(followWait)
	defer timer.Stop()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	of := l.note(request)
	for {
		if of == nil || of.lost || request.Step < of.base || !of.begun && !(request.Whole && of.asked) {
			return events.PreCopyReply{Newest: l.newest, Gone: true}
		}
		if at, there := of.left[request.Step]; there {
			return events.PreCopyReply{Newest: l.newest, Units: at.layers}
		}
		news := l.news
		l.mutex.Unlock()
		late := false
		select {
		case <-news:
		case <-timer.C:
			late = true
		case <-l.moving.Done():
			late = true
		}
		l.mutex.Lock()
		if late {
			return events.PreCopyReply{Newest: l.newest}
		}
	}
}

// note takes what a request tells: a receiver that asks for a step has taken the ones before, and one that asks for the layers at a
// later step begins anew.
func (l *trail) note(request events.PreCopyRequest) *trailOf {
	of := l.trails[request.To]
	if of == nil {
		return nil
	}
	if request.Whole && of.begun && request.Step > of.base {
		l.take(of, request.Step)
		of = newTrailOf(request.To)
		l.trails[request.To] = of
	}
	switch {
	case !request.Whole:
		l.take(of, request.Step)
	case !of.begun:
		of.asked, of.base = request.Step >= l.newest, request.Step
		l.wake() // a trainer that stands at that step can export at once
	}
	return of
}

// take notes that what is left before a step can be retired.
func (l *trail) take(of *trailOf, before uint64) {
	for step, left := range of.left {
		if step >= before {
			continue
		}
		if step != of.base {
			of.waiting -= left.bytes
		}
		for _, layer := range left.layers {
			for _, part := range layer.Parts {
				l.taken = append(l.taken, part.Digest)
			}
		}
		delete(of.left, step)
	}
}

// answerFollow answers a receiver. A negotiation that is not heard of yet, or is over, has nothing: it asks again.
func (s *Session) answerFollow(message *nats.Msg) {
	var request events.PreCopyRequest
	if err := json.Unmarshal(message.Data, &request); err != nil {
		slog.Warn("request not understood", "subject", message.Subject, "error", err)
		return
	}
	s.mutex.Lock()
	following, answer := s.view.following, events.PreCopyReply{Newest: s.view.done}
	s.mutex.Unlock()
	if following != nil && following.Negotiation == request.Negotiation {
		answer = following.trail.answer(request)
	}
	data, err := json.Marshal(answer)
	if err == nil {
		err = message.Respond(data)
	}
	if err != nil {
		slog.Warn("request not answered", "subject", message.Subject, "error", err)
	}
}
