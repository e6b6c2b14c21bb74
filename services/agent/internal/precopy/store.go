package precopy

import (
	"errors"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/services/agent/internal/transfer"
)

// Serve cuts what is captured into parts, puts them into the node's store, and retires what has been taken, until the
// negotiation ends; then it retires the rest.
func (s *Sender) Serve() {
	s.store()
	<-s.before
	s.retire(slices.Collect(maps.Keys(s.held)))
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
			if err := s.put(captured); err != nil && s.context.Err() == nil {
				s.mutex.Lock()
				s.lose(captured.client, err.Error())
				s.mutex.Unlock()
			}
			s.retireTaken()
		}
	}
}

// errBehind says that a receiver takes changes more slowly than training makes them.
var errBehind = errors.New("it takes changes more slowly than they come")

// put tells the manifest before it stores the parts: who asks for one too early asks again. Nothing of it goes
// through the hub, where it would stay.
func (s *Sender) put(captured *capture) error {
	var at left
	for _, share := range captured.shares {
		at.units = append(at.units, share.manifest())
		at.bytes += int64(len(share.data))
	}
	if !s.reveal(captured, at) {
		return errBehind
	}
	puts, ctx := errgroup.WithContext(s.context)
	puts.SetLimit(transfer.PutsAtOnce)
	for i, share := range captured.shares {
		for _, part := range at.units[i].Parts {
			s.held[part.Digest]++
			puts.Go(func() error {
				return s.exchange.Node().Store.PutAs(ctx, part.Digest, share.data[part.First-share.first:part.End-share.first])
			})
		}
	}
	return puts.Wait()
}

// reveal has a receiver hear what is left at a step, unless too much waits for it.
func (s *Sender) reveal(captured *capture, at left) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	client := captured.client
	if captured.whole {
		client.bytes = at.bytes
	} else {
		client.waiting += at.bytes
	}
	if client.phase == lost || client.waiting > waitingMax*client.bytes {
		return false
	}
	client.left[captured.step] = at
	s.announce()
	return true
}

// retireTaken retires what no receiver is to take any more.
func (s *Sender) retireTaken() {
	s.mutex.Lock()
	taken := s.taken
	s.taken = nil
	s.mutex.Unlock()
	var gone []string
	for _, digest := range taken {
		s.held[digest]--
		if s.held[digest] == 0 {
			delete(s.held, digest)
			gone = append(gone, digest)
		}
	}
	s.retire(gone)
}

func (s *Sender) retire(digests []string) { transfer.Retire(s.exchange.Node(), digests...) }
