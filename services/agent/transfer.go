package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/reknit/reknit/events"
)

// partBytes is the length of a part: large enough that its request does not count, small enough to be fetched again.
const partBytes = 8 << 20

func (s *Session) offered(offer heard[events.Offer]) {
	if s.view.current(offer.payload.Negotiation) {
		s.view.offers = append(s.view.offers, offer.payload)
	}
}

// move gives the layers that others need of this node and takes those it needs, at the stop step. What it gives goes on
// until the negotiation ends. Called and returning with the mutex held, which it gives up meanwhile.
func (s *Session) move(ctx context.Context, state State) error {
	moving, cancel := context.WithCancel(ctx)
	s.view.moved, s.view.cancelMove = true, cancel
	t := s.newMoves(moving, s.view.schedule.event, s.view.schedule.payload)
	s.mutex.Unlock()
	defer s.mutex.Lock()
	defer s.wake() // the wait for manifests may have taken the news that Boundary waits for
	err := t.give(moving, state)
	if err == nil {
		err = t.receive(moving, state)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.failed(moving, err)
	return nil
}

// nothingBefore is what the first move waits for.
var nothingBefore = func() chan struct{} {
	ended := make(chan struct{})
	close(ended)
	return ended
}()

// moves is what a negotiation asks this node to give and to take.
type moves struct {
	*Session
	events.Schedule
	cause   events.Event    // of what is said of it
	members []events.Member // of the negotiation, leavers included
	moving  context.Context // ends with the negotiation
	before  <-chan struct{} // closed when the parts of the negotiation before are retired: some may be parts of this one
	ahead   *following      // what moved in this negotiation while training went on; nil for nothing
	retired chan struct{}   // closed when nothing of this one, and of what went ahead, is left in the node's store

	given  sync.Mutex
	stored []stored
	kept   []keptLayer
	lifts  map[string]bool // receivers that cannot reach this node's store
}

// newMoves is called with the mutex held.
func (s *Session) newMoves(moving context.Context, cause events.Event, schedule events.Schedule) *moves {
	t := &moves{
		Session: s, Schedule: schedule, cause: cause, members: s.view.opening.payload.Members,
		moving: moving, before: nothingBefore, ahead: s.view.following, retired: make(chan struct{}), lifts: map[string]bool{},
	}
	switch {
	case t.ahead != nil:
		t.before = t.ahead.before
	case s.moves != nil:
		t.before = s.moves.retired
	}
	s.moves = t
	return t
}

// failed tells why a move cannot end well, unless it is because the negotiation ended; another one may wait for this
// node's consent.
func (t *moves) failed(moving context.Context, err error) {
	if err == nil || moving.Err() != nil {
		return
	}
	t.say(t.speaker.Say(t.cause, events.RestorationFailed, t.config.Node,
		&events.Failure{Negotiation: t.Negotiation, Node: t.config.Node, Reason: err.Error()}))
}

// throughHub reports whether two nodes cannot or must not reach each other's stores.
func (t *moves) throughHub(giver, receiver string) bool {
	return t.shardAddress(giver) == "" || t.shardAddress(receiver) == "" || slices.Contains(t.Plan.Relays, events.PairOf(giver, receiver))
}

func (t *moves) shardAddress(node string) string {
	for _, member := range t.members {
		if member.Node == node {
			return member.ShardAddress
		}
	}
	return ""
}

// layersFrom returns the layers that a node is a source of, in order of their first transfer.
func layersFrom(node string, transfers []events.Transfer) []int {
	var layers []int
	for _, transfer := range transfers {
		if _, gives := rangeOf(node, transfer); gives && !slices.Contains(layers, transfer.Unit) {
			layers = append(layers, transfer.Unit)
		}
	}
	return layers
}

func rangeOf(node string, transfer events.Transfer) (shards events.Range, gives bool) {
	for _, source := range transfer.Sources {
		if source.Node == node {
			return source.Shards, true
		}
	}
	return events.Range{}, false
}

// partsOf cuts a layer into parts, at every border between what two nodes give. All its holders cut it alike, so that
// each can give what another was to.
func partsOf(layer int, migration events.Migration, bytes int64) []events.Part {
	borders := []int64{0, bytes}
	for _, transfer := range migration.Transfers {
		for _, source := range transfer.Sources {
			if transfer.Unit == layer {
				first, _ := byteRange(source.Shards, transfer, migration.ShardBytes, bytes)
				borders = append(borders, first)
			}
		}
	}
	slices.Sort(borders)
	var parts []events.Part
	for i, end := range borders[1:] {
		for first := borders[i]; first < end; first += partBytes {
			parts = append(parts, events.Part{First: first, End: min(first+partBytes, end)})
		}
	}
	return parts
}

// byteRange turns a range of shards into bytes of the layer as it really is: the last shard takes what is left, for
// a layer's canonical form is a little longer than its parameters.
func byteRange(shards events.Range, transfer events.Transfer, shardBytes, bytes int64) (first, end int64) {
	first, end = int64(shards.First)*shardBytes, int64(shards.End)*shardBytes
	if shards.End == transfer.Sources[len(transfer.Sources)-1].Shards.End {
		end = bytes
	}
	return min(first, bytes), min(end, bytes)
}

// tile picks the parts that cover a range of bytes without a gap.
func tile(parts []events.Part, from, to int64) ([]events.Part, error) {
	var tiles []events.Part
	for at := from; at < to; {
		best := events.Part{End: at}
		for _, part := range parts {
			if part.First == at && part.End <= to && part.End > best.End {
				best = part
			}
		}
		if best.End == at {
			return nil, fmt.Errorf("no part offered from byte %d on", at)
		}
		tiles = append(tiles, best)
		at = best.End
	}
	return tiles, nil
}
