package agent

import (
	"context"
	"encoding/json"
	"errors"
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
	layersAtOnce = 4         // exported and not yet stored: what a node gives is in memory so often, beside its store
	putsAtOnce   = 2         // of a layer's parts: one is hashed while another travels
	keptBytes    = 256 << 20 // of layers that are kept to be stored later, if at all
	earlyParts   = 2         // stored before their layer's manifest is told: who hears it finds them there
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

// give exports what this node is to give, on the trainer's goroutine and a few layers at a time, and serves it behind the
// trainer's back until ctx ends with the negotiation.
func (t *moves) give(ctx context.Context, state State) error {
	offers, offering := errgroup.WithContext(ctx)
	offers.SetLimit(layersAtOnce)
	defer func() { go t.serve(ctx, offers) }()
	for _, layer := range layersFrom(t.config.Node, t.Plan.Migration.Transfers) {
		data, err := state.Export(layer, t.StopStep)
		if err != nil {
			return fmt.Errorf("layer %d at step %d: %w", layer, t.StopStep, err)
		}
		offers.Go(func() error { return t.offer(offering, layer, data) })
	}
	return nil
}

// serve waits until ctx ends, and then retires what was stored. What others were to give, and what went ahead, is stored only
// where the move lasts: something failed then.
func (t *moves) serve(ctx context.Context, offers *errgroup.Group) {
	defer close(t.retired)
	t.failed(ctx, offers.Wait())
	if pause(ctx, shards.SpareWait/2) {
		for _, kept := range t.kept {
			t.putLater(ctx, kept)
		}
	}
	t.kept = nil
	<-ctx.Done()
	<-t.before
	if t.ahead != nil {
		<-t.ahead.retired
	}
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
			slog.Warn("part not retired; it stays until this process ends", "node", t.config.Node, "error", err)
		}
	}
}

// offer stores the first parts that this node is to give, tells the layer's manifest, and stores the rest. Who followed the
// layer needs the manifest only.
func (t *moves) offer(ctx context.Context, layer int, data []byte) error {
	offer := events.Offer{
		Negotiation: t.Negotiation, Node: t.config.Node, Unit: layer, Step: t.StopStep,
		Digest: events.Digest(data), Bytes: int64(len(data)), Parts: partsOf(layer, t.Plan.Migration, int64(len(data))),
	}
	for i, part := range offer.Parts {
		offer.Parts[i].Digest = events.Digest(data[part.First:part.End])
	}
	select {
	case <-t.before:
	case <-ctx.Done():
		return ctx.Err()
	}
	var now, later []events.Part
	for _, part := range offer.Parts {
		if t.awaited(t.receivers(offer, part)) {
			now = append(now, part)
		} else {
			later = append(later, part)
		}
	}
	early := min(earlyParts, len(now))
	if err := t.putAll(ctx, offer, now[:early], data); err != nil {
		return err
	}
	if _, err := t.bus.Publish(ctx, t.speaker.Say(t.cause, events.ShardOffered, fmt.Sprintf("unit-%d", layer), &offer)); err != nil {
		return err
	}
	if err := t.putAll(ctx, offer, now[early:], data); err != nil {
		return err
	}
	if kept := (keptLayer{offer, later, data}); !t.keep(kept) {
		t.putLater(ctx, kept)
	}
	return nil
}

// awaited reports whether one of a part's receivers has nothing of its layer yet.
func (t *moves) awaited(receivers []string) bool {
	return slices.ContainsFunc(receivers, func(node string) bool { return t.ahead == nil || !t.ahead.trail.leads(node) })
}

// keptLayer is one of which some parts are stored later.
type keptLayer struct {
	offer events.Offer
	parts []events.Part
	data  []byte
}

// keep keeps a layer's bytes for later, where there is room.
func (t *moves) keep(layer keptLayer) bool {
	t.given.Lock()
	defer t.given.Unlock()
	bytes := len(layer.data)
	for _, kept := range t.kept {
		bytes += len(kept.data)
	}
	if bytes > keptBytes {
		return false
	}
	t.kept = append(t.kept, layer)
	return true
}

// putLater stores the parts of a layer that may not be needed. Where there is no room for them, there are none.
func (t *moves) putLater(ctx context.Context, layer keptLayer) {
	if err := t.putAll(ctx, layer.offer, layer.parts, layer.data); err != nil && ctx.Err() == nil {
		slog.Warn("a layer has no spare here, should another giver fail", "node", t.config.Node, "layer", layer.offer.Unit, "error", err)
	}
}

func (t *moves) putAll(ctx context.Context, offer events.Offer, parts []events.Part, data []byte) error {
	puts, ctx := errgroup.WithContext(ctx)
	puts.SetLimit(putsAtOnce)
	for _, part := range parts {
		puts.Go(func() error { return t.put(ctx, part.Digest, data[part.First:part.End], t.receivers(offer, part)) })
	}
	return puts.Wait()
}

// put stores a part: in the hub's store too where a receiver cannot reach this node's, and only there where this node's is
// full.
func (t *moves) put(ctx context.Context, digest string, data []byte, receivers []string) error {
	err := t.store.PutAs(ctx, digest, data)
	if errors.Is(err, shards.ErrFull) && len(receivers) > 0 {
		slog.Warn("a part goes through the hub", "node", t.config.Node, "error", err)
		return t.putIntoHub(ctx, data)
	}
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
		if transfer.Unit != offer.Unit || !gives {
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
	var lift events.ViaHub
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
