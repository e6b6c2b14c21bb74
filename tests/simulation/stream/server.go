// Package stream models what Reknit uses of NATS JetStream, for a simulated world: deterministic, in memory, without
// goroutines, with time passed in. A conformance test holds the model to the real server.
package stream

import (
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// State is how the servers are.
type State int

const (
	// Up: requests are answered.
	Up State = iota
	// Down: nobody listens. A request fails at once with ErrNoConnection.
	Down
	// Electing: there is no leader. A request fails with jetstream.ErrNoStreamResponse, or ErrNoAnswer for a read.
	Electing
	// Isolated: the leader of replicated streams does not reach its followers. It answers reads; what is written waits
	// in process and is not acknowledged.
	Isolated
)

// Fate is what becomes of one request on its way, as the caller chooses.
type Fate int

const (
	// Answered: the request arrives and its answer too.
	Answered Fate = iota
	// Lost: the request never arrives. The client learns nothing: ErrNoAnswer.
	Lost
	// Unheard: the request has its effect and the answer is lost: ErrNoAnswer.
	Unheard
	// Refused: the client has no connection and knows it: ErrNoConnection.
	Refused
	// Lagging: a direct read (of a bucket) is answered by a replica that has not the last write of the key. Every other
	// request is answered.
	Lagging
)

var (
	// ErrNoAnswer says that the client waited in vain until the end of its patience.
	ErrNoAnswer = errors.New("no answer")
	// ErrNoConnection says that nothing was sent.
	ErrNoConnection = errors.New("no connection")
)

// Server is the hub: the two streams of a Reknit installation, each with its payloads, and the services' memories.
type Server struct {
	Events, Plans *Stream
	Snapshots     *Bucket
	state         State
	replicated    bool
}

// Limits are what a test makes smaller than an installation has. Zero means unlimited.
type Limits struct {
	PayloadBytes, SnapshotBytes int64 // of each stream's payloads, and of the services' memories
}

// NewServer returns a server with empty streams. Replicated stands for three servers, whose leader checks a publish
// before it is stored.
func NewServer(facts, plans events.Stream, limits Limits, replicated bool) *Server {
	s := &Server{replicated: replicated}
	s.Events, s.Plans = newStream(s, facts), newStream(s, plans)
	s.Events.Payloads, s.Plans.Payloads = newObjects(s, limits.PayloadBytes), newObjects(s, limits.PayloadBytes)
	s.Snapshots = newBucket(s, limits.SnapshotBytes)
	return s
}

// State returns how the servers are.
func (s *Server) State() State { return s.state }

// Become changes how the servers are. Messages that wait in process stay there: see Heal and Elect.
func (s *Server) Become(state State) { s.state = state }

// Heal ends an isolation: the followers are back, and what waited is stored. Nobody hears the acknowledgements.
func (s *Server) Heal() {
	for _, stream := range s.streams() {
		stream.settle(len(stream.inProcess))
	}
	s.state = Up
}

// Elect makes another server the leader: of what waited in process, each stream keeps the first messages that keep
// names, as far as the new leader had them, and the others never existed.
func (s *Server) Elect(keep int) {
	for _, stream := range s.streams() {
		stream.settle(min(keep, len(stream.inProcess)))
	}
	s.state = Up
}

func (s *Server) streams() []*Stream { return []*Stream{s.Events, s.Plans, s.Snapshots.stream} }

// reach reports why a request does not arrive.
func (s *Server) reach(fate Fate) error {
	switch {
	case fate == Refused || s.state == Down:
		return ErrNoConnection
	case fate == Lost:
		return ErrNoAnswer
	case s.state == Electing:
		return jetstream.ErrNoStreamResponse
	}
	return nil
}

// read reports why a read brings nothing home.
func (s *Server) read(fate Fate) error {
	err := s.reach(fate)
	if errors.Is(err, jetstream.ErrNoStreamResponse) || fate == Unheard {
		return ErrNoAnswer
	}
	return err
}
