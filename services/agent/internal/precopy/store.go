package precopy

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/services/agent/shards"
)

// Serve cuts what is captured into parts, gives them, and withdraws what has been taken, until the negotiation ends; then it
// withdraws the rest.
func (s *Sender) Serve() {
	s.store()
	<-s.before
	s.withdraw(slices.Concat(slices.Collect(maps.Values(s.held))...))
}

func (s *Sender) store() {
	select {
	case <-s.before:
	case <-s.context.Done():
		return
	}
	for {
		select {
		case <-s.context.Done():
			return
		case captured := <-s.captured:
			s.give(captured)
			s.withdrawTaken()
		}
	}
}

// give tells the manifest of what was captured, and has the node's store give it. Nothing of it goes through the hub,
// where it would stay.
func (s *Sender) give(captured *capture) {
	var at left
	for _, share := range captured.shares {
		at.units = append(at.units, share.manifest())
		at.bytes += int64(len(share.data))
	}
	if !s.admit(captured, at) {
		return
	}
	for i, share := range captured.shares {
		for _, part := range at.units[i].Parts {
			offering := s.exchange.Node().Store.Offer(part.Digest, share.data[part.First-share.first:part.End-share.first])
			s.held[part.Digest] = append(s.held[part.Digest], offering)
		}
	}
	s.reveal(captured, at)
}

// admit counts what is left for a receiver. One for which too much waits takes changes more slowly than they come, and is
// led no more.
func (s *Sender) admit(captured *capture, at left) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	client := captured.client
	if captured.whole {
		client.bytes = at.bytes
	} else {
		client.waiting += at.bytes
	}
	if client.waiting > waitingMax*client.bytes {
		s.lose(client, "it takes changes more slowly than they come")
	}
	return client.phase != lost
}

// reveal has a receiver hear what is left at a step.
func (s *Sender) reveal(captured *capture, at left) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	captured.client.left[captured.step] = at
	s.announce()
}

// withdrawTaken withdraws what no receiver is to take any more.
func (s *Sender) withdrawTaken() {
	s.mutex.Lock()
	taken := s.taken
	s.taken = nil
	s.mutex.Unlock()
	var gone []*shards.Offering
	for _, digest := range taken {
		gone = append(gone, s.held[digest][0])
		if s.held[digest] = s.held[digest][1:]; len(s.held[digest]) == 0 {
			delete(s.held, digest)
		}
	}
	s.withdraw(gone)
}

func (s *Sender) withdraw(offerings []*shards.Offering) {
	s.exchange.Node().Store.Withdraw(offerings...)
}
