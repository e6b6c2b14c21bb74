package bus

import (
	"context"
	"sync"

	"github.com/reknit/reknit/events"
)

const (
	// inFlight is how many bytes the payloads of one consumer may take that are fetched, decoded, or wait for its reader, but for one
	// payload that takes more by itself.
	inFlight = 64 << 20
	// valueBytes is what a value takes in memory beside its JSON, while it is decoded: lists grow, and what they grew out of is garbage.
	valueBytes = 128
)

// flight is what the payloads take that one consumer has on their way.
type flight struct {
	mutex sync.Mutex
	held  int
	freed chan struct{} // closed when some of it is given back
	last  chan struct{} // closed when the message that was received last has its share
}

func newFlight() *flight {
	f := &flight{freed: make(chan struct{}), last: make(chan struct{})}
	close(f.last)
	return f
}

// share is what one message takes of it. Shares are taken in the order of the log: whoever waits for one waits for those before only,
// with which the reader can go on.
type share struct {
	of     *flight
	before <-chan struct{}
	taken  chan struct{} // closed once it is taken
	held   int
}

// next is the share of the next message. Only one may ask at a time.
func (f *flight) next() *share {
	s := &share{of: f, before: f.last, taken: make(chan struct{})}
	f.last = s.taken
	return s
}

// turn waits until all messages before have their shares. None behind has its turn before this one has its share.
func (s *share) turn(ctx context.Context) error {
	select {
	case <-s.before:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// take waits until there is room for what a bound allows, or for nothing where the message has no payload. It is called once.
func (s *share) take(ctx context.Context, bound events.Bound) error {
	defer close(s.taken)
	if err := s.turn(ctx); err != nil {
		return err
	}
	need := bound.Bytes + valueBytes*bound.Values
	for need > 0 {
		s.of.mutex.Lock()
		freed := s.of.freed
		if s.of.held == 0 || s.of.held+need <= inFlight {
			s.of.held, s.held = s.of.held+need, need
			need = 0
		}
		s.of.mutex.Unlock()
		if need == 0 {
			break
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// settle gives back all but what a payload takes that was read.
func (s *share) settle(data []byte) {
	if data == nil || s.held == 0 {
		s.giveBack(s.held)
		return
	}
	s.giveBack(s.held - min(s.held, len(data)+valueBytes*events.Values(data)))
}

func (s *share) giveBack(bytes int) {
	if bytes == 0 {
		return
	}
	s.of.mutex.Lock()
	defer s.of.mutex.Unlock()
	s.held -= bytes
	s.of.held -= bytes
	close(s.of.freed)
	s.of.freed = make(chan struct{})
}
