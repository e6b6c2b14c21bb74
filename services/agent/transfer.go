package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
)

const (
	partBytes    = 8 << 20 // a part: large enough that its request does not count, small enough to be fetched again
	partsAtOnce  = 4       // fetched at a time
	fetchRetries = 3       // of a part that is corrupt or not there yet
)

// A store without a leader comes back within ten seconds (measured on three servers: 8.3 s at most).
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

// errOver says that the negotiation a transfer belongs to is over.
var errOver = errors.New("the negotiation is over")

func (s *Session) offered(offer heard[events.Offer]) {
	if s.view.current(offer.payload.Negotiation) {
		s.view.offers = append(s.view.offers, offer.payload)
	}
}

// move gives the layers that others need of this node and takes those it needs, at the stop step. Called and
// returning with the mutex held, which it gives up meanwhile.
func (s *Session) move(ctx context.Context, state State) error {
	schedule := s.view.schedule
	moving, cancel := context.WithCancel(ctx)
	defer cancel()
	s.view.moved, s.view.cancelMove = true, cancel
	s.mutex.Unlock()
	defer s.mutex.Lock()
	err := s.give(moving, schedule, state)
	if err == nil {
		err = s.receive(moving, schedule, state)
	}
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errOver) || moving.Err() != nil {
		return nil // the negotiation ended; another one may wait for this node's consent
	}
	s.say(s.speaker.Say(schedule.event, events.RestorationFailed, s.config.Node,
		&events.Failure{Negotiation: schedule.payload.Negotiation, Node: s.config.Node, Reason: err.Error()}))
	return nil
}

// give puts this node's shards into the store, each layer's manifest behind its bytes. Layers are exported one after
// another on the trainer's goroutine, and sent at the same time.
func (s *Session) give(ctx context.Context, schedule *heard[events.Schedule], state State) error {
	migration, step := schedule.payload.Plan.Migration, schedule.payload.StopStep
	sends, ctx := errgroup.WithContext(ctx)
	sends.SetLimit(partsAtOnce)
	for _, layer := range layersFrom(s.config.Node, migration.Transfers) {
		data, err := state.Export(layer, step)
		if err != nil {
			return errors.Join(fmt.Errorf("layer %d at step %d: %w", layer, step, err), sends.Wait())
		}
		sends.Go(func() error {
			return s.offer(ctx, schedule.event, events.Offer{
				Negotiation: schedule.payload.Negotiation, Node: s.config.Node, Layer: layer, Step: step,
				Digest: events.Digest(data), Bytes: int64(len(data)),
				Parts: partsFrom(s.config.Node, layer, migration, int64(len(data))),
			}, data)
		})
	}
	return sends.Wait()
}

// offer stores the parts of a layer and tells so. A store that is away for a moment is tried again.
func (s *Session) offer(ctx context.Context, cause events.Event, offer events.Offer, data []byte) error {
	for i, part := range offer.Parts {
		digest, err := s.bus.Put(ctx, events.ShardBucket, data[part.First:part.End])
		for attempt := 1; err != nil && attempt < putAttempts && pause(ctx, putPause); attempt++ {
			digest, err = s.bus.Put(ctx, events.ShardBucket, data[part.First:part.End])
		}
		if err != nil {
			return err
		}
		offer.Parts[i].Digest = digest
	}
	_, err := s.bus.Publish(ctx, s.speaker.Say(cause, events.ShardOffered, fmt.Sprintf("layer-%d", offer.Layer), &offer))
	return err
}

// layersFrom returns the layers that a node is a source of, in order of their first transfer.
func layersFrom(node string, transfers []events.Transfer) []int {
	var layers []int
	seen := map[int]bool{}
	for _, transfer := range transfers {
		if _, gives := rangeOf(node, transfer); gives && !seen[transfer.Layer] {
			seen[transfer.Layer] = true
			layers = append(layers, transfer.Layer)
		}
	}
	return layers
}

func rangeOf(node string, transfer events.Transfer) (shards events.Layers, gives bool) {
	for _, source := range transfer.Sources {
		if source.Node == node {
			return source.Shards, true
		}
	}
	return events.Layers{}, false
}

// partsFrom cuts what a node gives of a layer into parts. Receivers of the same range share them.
func partsFrom(node string, layer int, migration events.Migration, bytes int64) []events.Part {
	var parts []events.Part
	seen := map[events.Part]bool{}
	for _, transfer := range migration.Transfers {
		shards, gives := rangeOf(node, transfer)
		if transfer.Layer != layer || !gives {
			continue
		}
		first, end := byteRange(shards, transfer, migration.ShardBytes, bytes)
		for ; first < end; first += partBytes {
			part := events.Part{First: first, End: min(first+partBytes, end)}
			if !seen[part] {
				seen[part] = true
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// byteRange turns a range of shards into bytes of the layer as it really is: the last shard takes what is left, for
// a layer's canonical form is a little longer than its parameters.
func byteRange(shards events.Layers, transfer events.Transfer, shardBytes, bytes int64) (first, end int64) {
	first, end = int64(shards.First)*shardBytes, int64(shards.End)*shardBytes
	if shards.End == transfer.Sources[len(transfer.Sources)-1].Shards.End {
		end = bytes
	}
	return min(first, bytes), min(end, bytes)
}

// receive fetches every layer this node needs, all at the same time, verifies them, and tells so.
func (s *Session) receive(ctx context.Context, schedule *heard[events.Schedule], state State) error {
	began := time.Now()
	receipt := events.Receipt{Negotiation: schedule.payload.Negotiation, Node: s.config.Node}
	fetches, fetching := errgroup.WithContext(ctx)
	fetches.SetLimit(partsAtOnce)
	var arrived []*arrival
	for _, transfer := range schedule.payload.Plan.Migration.Transfers {
		if transfer.To != s.config.Node {
			continue
		}
		layer, err := s.request(fetching, fetches, schedule, transfer)
		if err != nil {
			return errors.Join(fmt.Errorf("layer %d: %w", transfer.Layer, err), fetches.Wait())
		}
		arrived = append(arrived, layer)
	}
	if err := fetches.Wait(); err != nil || len(arrived) == 0 {
		return err
	}
	for _, layer := range arrived {
		received, err := layer.load(state)
		if err != nil {
			return fmt.Errorf("layer %d: %w", layer.offer.Layer, err)
		}
		receipt.Layers = append(receipt.Layers, received)
	}
	receipt.Seconds = time.Since(began).Seconds()
	_, err := s.bus.Publish(ctx, s.speaker.Say(schedule.event, events.ShardReceived, s.config.Node, &receipt))
	return err
}

// arrival is a layer on its way, as its holders offered it.
type arrival struct {
	offer events.Offer
	data  []byte
}

// request waits for the manifests of a layer and has its parts fetched.
func (s *Session) request(ctx context.Context, fetches *errgroup.Group, schedule *heard[events.Schedule], transfer events.Transfer) (*arrival, error) {
	offers, err := s.awaitOffers(ctx, schedule, transfer)
	if err != nil {
		return nil, err
	}
	layer := &arrival{offer: offers[0], data: make([]byte, offers[0].Bytes)}
	for i, source := range transfer.Sources {
		if offers[i].Digest != layer.offer.Digest || offers[i].Bytes != layer.offer.Bytes {
			return nil, fmt.Errorf("%s holds %s, %s holds %s", layer.offer.Node, layer.offer.Digest, offers[i].Node, offers[i].Digest)
		}
		from, to := byteRange(source.Shards, transfer, schedule.payload.Plan.Migration.ShardBytes, layer.offer.Bytes)
		parts, err := tile(offers[i].Parts, from, to)
		if err != nil {
			return nil, fmt.Errorf("from %s: %w", source.Node, err)
		}
		for _, part := range parts {
			fetches.Go(func() error { return s.fetch(ctx, part, layer.data[part.First:part.End]) })
		}
	}
	return layer, nil
}

// load verifies a layer that is complete and hands it to the trainer.
func (a *arrival) load(state State) (events.ReceivedLayer, error) {
	if digest := events.Digest(a.data); digest != a.offer.Digest {
		return events.ReceivedLayer{}, fmt.Errorf("expected %s, got %s", a.offer.Digest, digest)
	}
	if err := state.Import(a.offer.Layer, a.offer.Step, a.data); err != nil {
		return events.ReceivedLayer{}, err
	}
	return events.ReceivedLayer{Layer: a.offer.Layer, Step: a.offer.Step, Digest: a.offer.Digest, Bytes: a.offer.Bytes}, nil
}

// awaitOffers waits until every source of a transfer has published its manifest; they come in the sources' order.
func (s *Session) awaitOffers(ctx context.Context, schedule *heard[events.Schedule], transfer events.Transfer) ([]events.Offer, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for {
		if s.view.schedule != schedule {
			return nil, errOver
		}
		if offers := complete(s.view.offers, transfer, schedule.payload.StopStep); offers != nil {
			return offers, nil
		}
		s.await(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func complete(offers []events.Offer, transfer events.Transfer, step uint64) []events.Offer {
	found := make([]events.Offer, 0, len(transfer.Sources))
	for _, source := range transfer.Sources {
		for _, offer := range offers {
			if offer.Node == source.Node && offer.Layer == transfer.Layer && offer.Step == step {
				found = append(found, offer)
				break
			}
		}
	}
	if len(found) < len(transfer.Sources) {
		return nil
	}
	return found
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

// fetch reads a part and verifies it; bytes that are not those of the digest are never loaded.
func (s *Session) fetch(ctx context.Context, part events.Part, into []byte) error {
	var err error
	for range fetchRetries {
		var data []byte
		data, err = s.bus.Get(ctx, events.ShardBucket, part.Digest)
		if err == nil && len(data) == len(into) {
			copy(into, data)
			return nil
		}
		if err == nil {
			err = fmt.Errorf("part %s: expected %d bytes, got %d", part.Digest, len(into), len(data))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}
