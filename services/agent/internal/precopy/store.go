package precopy

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/services/agent/internal/transfer"
	"github.com/reknit/reknit/services/agent/shards"
)

// Serve cuts what is captured into parts, lends them, and retires what has been taken, until the negotiation ends; then it
// retires the rest.
func (s *Sender) Serve() {
	s.store()
	<-s.before
	s.retire(slices.Concat(slices.Collect(maps.Values(s.held))...))
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
			s.lend(captured)
			s.retireTaken()
		}
	}
}

// lend tells the manifest of what was captured, and has the node's store serve it. Nothing of it goes through the hub,
// where it would stay.
func (s *Sender) lend(captured *capture) {
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
			loan := s.exchange.Node().Store.Lend(part.Digest, share.data[part.First-share.first:part.End-share.first])
			s.held[part.Digest] = append(s.held[part.Digest], loan)
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

// retireTaken retires what no receiver is to take any more.
func (s *Sender) retireTaken() {
	s.mutex.Lock()
	taken := s.taken
	s.taken = nil
	s.mutex.Unlock()
	var gone []*shards.Loan
	for _, digest := range taken {
		gone = append(gone, s.held[digest][0])
		if s.held[digest] = s.held[digest][1:]; len(s.held[digest]) == 0 {
			delete(s.held, digest)
		}
	}
	s.retire(gone)
}

func (s *Sender) retire(loans []*shards.Loan) { transfer.Retire(s.exchange.Node(), loans...) }
