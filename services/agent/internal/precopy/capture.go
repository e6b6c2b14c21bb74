package precopy

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/internal/transfer"
)

// State is a trainer's state at a boundary.
type State interface {
	Export(unit int, step uint64) ([]byte, error)
	Change(unit int, step uint64) ([]byte, error)
}

// capture is this node's shares of units at a step, or of what it changed in them, for one receiver.
type capture struct {
	client *client
	step   uint64
	whole  bool
	shares []share
}

// share is a range of a unit's bytes, or of a change's.
type share struct {
	unit  int
	first int64
	bytes int64 // of the whole
	data  []byte
}

// Due reports whether there is something to capture after so many steps.
func (s *Sender) Due(done uint64) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if done != s.newest {
		return true
	}
	for _, client := range s.clients {
		if client.phase == asked && client.base == done {
			return true
		}
	}
	return false
}

// Capture takes from the state what is to be left at a boundary, on the trainer's goroutine. It ends behind the unit at
// which the negotiation does.
func (s *Sender) Capture(done uint64, state State) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.newest = done
	due := s.due(done)
	for _, unit := range s.exchange.Given() {
		if s.context.Err() != nil {
			return
		}
		s.export(unit, due, state)
	}
	for _, capture := range due {
		select {
		case s.captured <- capture:
		default:
			s.lose(capture.client, "its parts are stored too slowly")
		}
	}
	s.announce()
}

// due begins a capture for each receiver that is to have one. Called with the mutex held.
func (s *Sender) due(done uint64) []*capture {
	var due []*capture
	for _, receiver := range slices.Sorted(maps.Keys(s.clients)) {
		switch client := s.clients[receiver]; {
		case client.phase == asked && client.base == done:
			client.phase, client.last = led, done
			due = append(due, &capture{client: client, step: done, whole: true})
		case client.phase == asked && client.base < done:
			client.phase = unasked // it passed the step before it was asked
		case client.phase == led && client.last+1 == done:
			client.last = done
			due = append(due, &capture{client: client, step: done})
		case client.phase == led && client.last != done:
			s.lose(client, "a step was left out")
		}
	}
	return due
}

// export asks for a unit once, whoever takes it, and copies no more than this node's shares: they are in memory
// until they are stored. Called with the mutex held.
func (s *Sender) export(unit int, due []*capture, state State) {
	var whole, change []byte
	for _, capture := range due {
		given, gives := s.given(unit, capture.client.receiver)
		if !gives {
			continue
		}
		data, from := &change, state.Change
		if capture.whole {
			data, from = &whole, state.Export
		}
		if *data == nil {
			var err error
			if *data, err = from(unit, capture.step); err != nil {
				s.lose(capture.client, err.Error())
				continue
			}
		}
		capture.shares = append(capture.shares, s.share(capture, given, *data))
	}
}

func (s *Sender) share(capture *capture, given events.Transfer, data []byte) share {
	bytes := int64(len(data))
	if capture.whole {
		capture.client.sizes[given.Unit] = bytes
	}
	shards, _ := transfer.ShardsOf(s.exchange.Node().Name, given)
	shardBytes, unitBytes := s.exchange.Migration().ShardBytes, capture.client.sizes[given.Unit]
	first, end := shareOf(shards, given, shardBytes, unitBytes, bytes)
	return share{given.Unit, first, bytes, slices.Clone(data[first:end])}
}

// given returns the transfer of a unit from this node to a receiver.
func (s *Sender) given(unit int, receiver string) (events.Transfer, bool) {
	for _, moved := range s.exchange.Migration().Transfers {
		_, gives := transfer.ShardsOf(s.exchange.Node().Name, moved)
		if gives && moved.To == receiver && moved.Unit == unit {
			return moved, true
		}
	}
	return events.Transfer{}, false
}

// manifest cuts a share into parts.
func (s share) manifest() events.PreCopied {
	unit := events.PreCopied{Unit: s.unit, Bytes: s.bytes}
	for part := range slices.Chunk(s.data, transfer.PartBytes) {
		first := s.first
		if last := len(unit.Parts) - 1; last >= 0 {
			first = unit.Parts[last].End
		}
		unit.Parts = append(unit.Parts,
			events.Part{Digest: events.Digest(part), First: first, End: first + int64(len(part))})
	}
	return unit
}

// shareOf turns a range of shards of a unit into bytes of what a step changed in it, which may be longer or shorter.
func shareOf(shards events.Range, given events.Transfer, shardBytes, unitBytes, bytes int64) (first, end int64) {
	first, end = transfer.ByteRange(shards, given, shardBytes, unitBytes)
	scaled := func(at int64) int64 { return int64(float64(at) / float64(unitBytes) * float64(bytes)) }
	if end == unitBytes {
		return scaled(first), bytes
	}
	return scaled(first), scaled(end)
}
