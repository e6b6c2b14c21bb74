package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
)

const (
	reachTimeout = 2 * time.Second // for a neighbour's store to accept a connection; then it is asked to use the hub
	liftPause    = time.Second     // between two requests to do so
	attendEvery  = time.Second
	theHub       = "the hub" // as a source; no node's id has a space
)

// receive takes every layer this node needs: those that it followed as they are, others from all their holders at a time. It
// verifies them, and tells so.
func (t *moves) receive(ctx context.Context, state State) error {
	wanted := t.wanted()
	if len(wanted) == 0 {
		return nil
	}
	receipt := events.Receipt{Negotiation: t.Negotiation, Node: t.config.Node}
	began := time.Now()
	wanted, err := t.takeFollowed(ctx, wanted, state, &receipt)
	if err == nil && len(wanted) > 0 {
		err = t.fetch(ctx, wanted, state, &receipt)
	}
	if err != nil {
		return err
	}
	receipt.Seconds = time.Since(began).Seconds()
	_, err = t.bus.Publish(ctx, t.speaker.Say(t.cause, events.ShardReceived, t.config.Node, &receipt))
	return err
}

// wanted returns the transfers to this node.
func (t *moves) wanted() []events.Transfer {
	return slices.DeleteFunc(slices.Clone(t.Plan.Migration.Transfers), func(transfer events.Transfer) bool {
		return transfer.To != t.config.Node
	})
}

// fetch has the layers of transfers fetched, and loads them.
func (t *moves) fetch(ctx context.Context, wanted []events.Transfer, state State, receipt *events.Receipt) error {
	reached := t.reach(giversOf(wanted))
	for giver, answers := range reached {
		if !answers && !t.throughHub(giver, t.config.Node) {
			go t.askForLift(ctx, giver)
		}
	}
	fetch, err := shards.NewTransfer(t.sources(reached, wanted), 0)
	if err != nil {
		return err
	}
	receiving, fetching := errgroup.WithContext(ctx)
	receiving.Go(func() error { return fetch.Run(fetching) })
	attending, attended := context.WithCancel(ctx)
	defer attended()
	go t.attend(attending, fetch)
	var arrived []*arrival
	receiving.Go(func() error {
		defer fetch.Seal()
		for _, transfer := range wanted {
			layer, err := t.request(fetching, fetch, transfer, reached)
			if err != nil {
				return fmt.Errorf("layer %d: %w", transfer.Unit, err)
			}
			arrived = append(arrived, layer)
		}
		return nil
	})
	if err := receiving.Wait(); err != nil {
		return err
	}
	receipt.Sources = append(receipt.Sources, received(fetch.Progress())...)
	for _, layer := range arrived {
		loaded, err := layer.load(state)
		if err != nil {
			return fmt.Errorf("layer %d: %w", layer.offer.Unit, err)
		}
		receipt.Units = append(receipt.Units, loaded)
	}
	return nil
}

// giversOf returns who is to give.
func giversOf(wanted []events.Transfer) []string {
	var givers []string
	for _, transfer := range wanted {
		for _, source := range transfer.Sources {
			if !slices.Contains(givers, source.Node) {
				givers = append(givers, source.Node)
			}
		}
	}
	return givers
}

// reach returns the givers whose stores may be used, and answer.
func (t *moves) reach(givers []string) map[string]bool {
	answers := make([]bool, len(givers))
	var dials sync.WaitGroup
	for i, giver := range givers {
		dials.Go(func() {
			if t.throughHub(giver, t.config.Node) {
				return
			}
			conn, err := nats.Connect("nats://"+t.shardAddress(giver), nats.Timeout(reachTimeout), nats.NoReconnect())
			if err != nil {
				slog.Warn("a neighbour's shard store is out of reach; its shards go through the hub", "node", t.config.Node, "neighbour", giver, "error", err)
				return
			}
			answers[i] = true
			conn.Close()
		})
	}
	dials.Wait()
	reached := map[string]bool{}
	for i, giver := range givers {
		reached[giver] = answers[i]
	}
	return reached
}

// askForLift asks a giver to put what it gives this node into the hub's store, until it says that it will.
func (t *moves) askForLift(ctx context.Context, giver string) {
	request, err := json.Marshal(events.ViaHub{Negotiation: t.Negotiation, To: t.config.Node})
	if err != nil {
		panic(err) // plain data
	}
	for {
		asked, cancel := context.WithTimeout(ctx, liftPause)
		_, err := t.bus.Conn().RequestWithContext(asked, events.ShardSubject(t.config.Cluster, giver), request)
		cancel()
		if err == nil || !pause(ctx, liftPause) {
			return
		}
	}
}

// sources are the stores that are reached, and the hub's.
func (t *moves) sources(reached map[string]bool, wanted []events.Transfer) []shards.Source {
	sources := []shards.Source{{Name: theHub, URL: t.config.NATSURL, Bucket: events.ShardBucket}}
	for _, member := range t.members {
		if reached[member.Node] {
			sources = append(sources, shards.Source{
				Name: member.Node, URL: "nats://" + member.ShardAddress, Bucket: events.ShardBucketOf(member.Node), BytesPerSecond: rateOf(member.Node, wanted),
			})
		}
	}
	return sources
}

// rateOf returns what the plan says that the link from a giver carries; zero where it was not measured.
func rateOf(giver string, wanted []events.Transfer) float64 {
	for _, transfer := range wanted {
		for _, source := range transfer.Sources {
			if source.Node == giver {
				return source.BytesPerSecond
			}
		}
	}
	return 0
}

// arrival is a layer on its way, as its holders offered it.
type arrival struct {
	offer events.Offer
	data  []byte
}

// request waits for the manifests of a layer and has its parts fetched.
func (t *moves) request(ctx context.Context, fetch *shards.Transfer, transfer events.Transfer, reached map[string]bool) (*arrival, error) {
	offers, err := t.awaitOffers(ctx, transfer)
	if err != nil {
		return nil, err
	}
	if err := t.fits(offers[0].Bytes); err != nil {
		return nil, fmt.Errorf("%s: %w", offers[0].Node, err)
	}
	layer := &arrival{offer: offers[0], data: make([]byte, offers[0].Bytes)}
	var parts []shards.Part
	for i, source := range transfer.Sources {
		from, to := byteRange(source.Shards, transfer, t.Plan.Migration.ShardBytes, layer.offer.Bytes)
		tiles, err := tile(offers[i].Parts, from, to)
		if err != nil {
			return nil, fmt.Errorf("from %s: %w", source.Node, err)
		}
		for _, part := range tiles {
			giver := source.Node
			if !reached[giver] {
				giver = theHub
			}
			parts = append(parts, shards.Part{
				Digest: part.Digest, First: part.First, End: part.End, Sources: []string{giver}, Spares: spares(part, offers, giver, reached),
			})
		}
	}
	return layer, fetch.Add(shards.Layer{Into: layer.data, Parts: parts})
}

// spares are the other holders of a part that are reached, and the hub: a giver that cannot be reached any more is asked to
// put it there.
func spares(part events.Part, offers []events.Offer, giver string, reached map[string]bool) []string {
	var names []string
	if giver != theHub {
		names = append(names, theHub)
	}
	for _, offer := range offers {
		if reached[offer.Node] && offer.Node != giver && slices.Contains(offer.Parts, part) {
			names = append(names, offer.Node)
		}
	}
	return names
}

// errOtherBytes says that a layer is not that of its manifest.
var errOtherBytes = errors.New("other bytes")

// load verifies a layer that is complete and hands it to the trainer.
func (a *arrival) load(state State) (events.ReceivedUnit, error) {
	if digest := events.Digest(a.data); digest != a.offer.Digest {
		return events.ReceivedUnit{}, fmt.Errorf("%w: expected %s, got %s", errOtherBytes, a.offer.Digest, digest)
	}
	if err := state.Import(a.offer.Unit, a.offer.Step, a.data); err != nil {
		return events.ReceivedUnit{}, err
	}
	return events.ReceivedUnit{Unit: a.offer.Unit, Step: a.offer.Step, Digest: a.offer.Digest, Bytes: a.offer.Bytes}, nil
}

// awaitOffers waits until every source of a transfer has published its manifest; they come in the sources' order.
func (t *moves) awaitOffers(ctx context.Context, transfer events.Transfer) ([]events.Offer, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for {
		if offers := complete(t.view.offers, transfer, t.StopStep); offers != nil {
			return offers, alike(offers)
		}
		t.await(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err() // also when the negotiation is over
		}
	}
}

// fits fails where a giver says that a layer is longer than all that this node may use.
func (t *moves) fits(bytes int64) error {
	if most := t.config.MemoryBytes; bytes > most {
		return fmt.Errorf("bytes: expected at most the node's memory, %d, got %d", most, bytes)
	}
	return nil
}

// alike fails where holders of a layer differ.
func alike(offers []events.Offer) error {
	for _, offer := range offers[1:] {
		if first := offers[0]; offer.Digest != first.Digest || offer.Bytes != first.Bytes {
			return fmt.Errorf("%s holds %s, %s holds %s", first.Node, first.Digest, offer.Node, offer.Digest)
		}
	}
	return nil
}

func complete(offers []events.Offer, transfer events.Transfer, step uint64) []events.Offer {
	found := make([]events.Offer, 0, len(transfer.Sources))
	for _, source := range transfer.Sources {
		for _, offer := range offers {
			if offer.Node == source.Node && offer.Unit == transfer.Unit && offer.Step == step {
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

// attend logs how far a transfer is, until ctx ends, and asks a giver that cannot be reached any more to use the hub.
func (t *moves) attend(ctx context.Context, fetch *shards.Transfer) {
	asked := map[string]bool{theHub: true}
	for pause(ctx, attendEvery) {
		progress := fetch.Progress()
		slog.Info("layers are on their way", "node", t.config.Node, "negotiation", t.Negotiation, "progress", progress.String())
		for _, source := range progress.Sources {
			lost := source.State == shards.Away || source.State == shards.Stalled
			if lost && !asked[source.Name] {
				asked[source.Name] = true
				go t.askForLift(ctx, source.Name)
			}
		}
	}
}

// received is what came from whom.
func received(progress shards.Progress) []events.Received {
	var list []events.Received
	for _, source := range progress.Sources {
		if source.Bytes == 0 {
			continue
		}
		from := source.Name
		if from == theHub {
			from = ""
		}
		list = append(list, events.Received{From: from, Bytes: source.Bytes, BytesPerSecond: source.BytesPerSecond})
	}
	return list
}
