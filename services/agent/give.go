package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
)

const (
	layersAtOnce = 2 // offered at a time
	putsAtOnce   = 2 // of a layer's parts: one is hashed while another travels
	earlyParts   = 2 // stored before their layer's manifest is told: who hears it finds them there
)

// The hub's store without a leader comes back within ten seconds (measured on three servers: 8.3 s at most).
const (
	putAttempts = 10
	putPause    = time.Second
)

// pause waits and reports whether ctx still lives.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}

// give exports what this node is to give, on the trainer's goroutine, and serves it behind the trainer's back until ctx
// ends with the negotiation.
func (t *moves) give(ctx context.Context, state State) error {
	layers := layersFrom(t.config.Node, t.Plan.Migration.Transfers)
	exported := make([][]byte, len(layers))
	for i, layer := range layers {
		var err error
		if exported[i], err = state.Export(layer, t.StopStep); err != nil {
			close(t.retired)
			return fmt.Errorf("layer %d at step %d: %w", layer, t.StopStep, err)
		}
	}
	go t.serve(ctx, layers, exported)
	return nil
}

// serve tells what this node gives and stores it. Its parts are retired when ctx ends, and those of the move before
// it are first: both may be the same.
func (t *moves) serve(ctx context.Context, layers []int, exported [][]byte) {
	defer close(t.retired)
	offers, offering := errgroup.WithContext(ctx)
	offers.SetLimit(layersAtOnce)
	for i, layer := range layers {
		offers.Go(func() error { return t.offer(offering, layer, exported[i]) })
	}
	t.failed(ctx, offers.Wait())
	clear(exported)
	<-ctx.Done()
	t.retire()
}

// stored is a part in this node's store, and whom it is to go to.
type stored struct {
	digest    string
	receivers []string
}

func (t *moves) retire() {
	t.given.Lock()
	defer t.given.Unlock()
	for _, part := range t.stored {
		if err := t.store.Retire(t.context, part.digest); err != nil && t.context.Err() == nil {
			slog.Warn("part not retired; it goes when its time is over", "node", t.config.Node, "error", err)
		}
	}
}

// offer stores the first parts that this node is to give, tells the layer's manifest, and stores the rest; all others
// follow where the move lasts, should another giver fail.
func (t *moves) offer(ctx context.Context, layer int, data []byte) error {
	offer := events.Offer{
		Negotiation: t.Negotiation, Node: t.config.Node, Layer: layer, Step: t.StopStep,
		Digest: events.Digest(data), Bytes: int64(len(data)), Parts: partsOf(layer, t.Plan.Migration, int64(len(data))),
	}
	for i, part := range offer.Parts {
		offer.Parts[i].Digest = events.Digest(data[part.First:part.End])
	}
	if t.before != nil {
		<-t.before
	}
	var mine, others []events.Part
	for _, part := range offer.Parts {
		if len(t.receivers(offer, part)) > 0 {
			mine = append(mine, part)
		} else {
			others = append(others, part)
		}
	}
	early := min(earlyParts, len(mine))
	if err := t.putAll(ctx, offer, mine[:early], data); err != nil {
		return err
	}
	if _, err := t.bus.Publish(ctx, t.speaker.Say(t.schedule.event, events.ShardOffered, fmt.Sprintf("layer-%d", layer), &offer)); err != nil {
		return err
	}
	if err := t.putAll(ctx, offer, mine[early:], data); err != nil || !pause(ctx, shards.SpareWait/2) {
		return err
	}
	return t.putAll(ctx, offer, others, data)
}

func (t *moves) putAll(ctx context.Context, offer events.Offer, parts []events.Part, data []byte) error {
	puts, ctx := errgroup.WithContext(ctx)
	puts.SetLimit(putsAtOnce)
	for _, part := range parts {
		puts.Go(func() error { return t.put(ctx, data[part.First:part.End], t.receivers(offer, part)) })
	}
	return puts.Wait()
}

// put stores a part, in the hub's store too where a receiver cannot reach this node's.
func (t *moves) put(ctx context.Context, data []byte, receivers []string) error {
	digest, err := t.store.Put(ctx, data)
	if err != nil {
		return err
	}
	t.given.Lock()
	t.stored = append(t.stored, stored{digest, receivers})
	lifts := slices.ContainsFunc(receivers, func(node string) bool { return t.lifts[node] || t.throughHub(t.config.Node, node) })
	t.given.Unlock()
	if lifts {
		return t.putIntoHub(ctx, data)
	}
	return nil
}

// putIntoHub tries again while the hub is away.
func (t *moves) putIntoHub(ctx context.Context, data []byte) error {
	_, err := t.bus.Put(ctx, events.ShardBucket, data)
	for attempt := 1; err != nil && attempt < putAttempts && pause(ctx, putPause); attempt++ {
		_, err = t.bus.Put(ctx, events.ShardBucket, data)
	}
	return err
}

// receivers are the nodes to which this one is to give a part.
func (t *moves) receivers(offer events.Offer, part events.Part) []string {
	var receivers []string
	for _, transfer := range t.Plan.Migration.Transfers {
		given, gives := rangeOf(t.config.Node, transfer)
		if transfer.Layer != offer.Layer || !gives {
			continue
		}
		first, end := byteRange(given, transfer, t.Plan.Migration.ShardBytes, offer.Bytes)
		if first <= part.First && part.End <= end {
			receivers = append(receivers, transfer.To)
		}
	}
	return receivers
}

// answerLift hears that somebody cannot reach this node's store. What that one is to be given goes into the hub's store,
// too. Without an answer it asks again.
func (s *Session) answerLift(message *nats.Msg) {
	var lift events.Lift
	if err := json.Unmarshal(message.Data, &lift); err != nil {
		slog.Warn("request not understood", "subject", message.Subject, "error", err)
		return
	}
	s.mutex.Lock()
	moves := s.moves
	s.mutex.Unlock()
	if moves == nil || moves.Negotiation != lift.Negotiation || message.Respond(nil) != nil {
		return
	}
	go func() { moves.failed(moves.moving, moves.lift(moves.moving, lift.To)) }()
}

// lift puts what this node gives a receiver into the hub's store: what is in its own, and from now on what comes there.
func (t *moves) lift(ctx context.Context, to string) error {
	t.given.Lock()
	t.lifts[to] = true
	there := slices.DeleteFunc(slices.Clone(t.stored), func(part stored) bool { return !slices.Contains(part.receivers, to) })
	t.given.Unlock()
	for _, part := range there {
		data, err := t.store.Get(ctx, part.digest)
		if err == nil {
			err = t.putIntoHub(ctx, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
