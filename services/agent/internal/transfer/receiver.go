package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/queue"
	"github.com/reknit/reknit/services/agent/shards"
)

const lookEvery = time.Second // at how far a transfer is

// Receiver takes units until its context ends with the negotiation.
type Receiver struct {
	exchange *Exchange
	context  context.Context
	opened   time.Time
	ready    chan struct{} // closed when the givers' stores were tried: what follows is set then
	reached  map[string]bool
	fetch    *shards.Transfer
	unable   error         // to fetch anything
	ended    chan struct{} // closed when nothing is fetched any more, because of err
	err      error
}

// NewReceiver begins to reach the stores of those who give.
func NewReceiver(ctx context.Context, exchange *Exchange) *Receiver {
	r := &Receiver{
		exchange: exchange, context: ctx, opened: time.Now(), ready: make(chan struct{}), ended: make(chan struct{}),
	}
	go r.run()
	return r
}

func (r *Receiver) run() {
	defer close(r.ended)
	r.reached = r.exchange.Reach(r.context)
	r.fetch, r.unable = shards.NewTransfer(append([]shards.Source{r.exchange.hub()}, r.exchange.Sources(r.reached)...))
	close(r.ready)
	if r.unable != nil {
		return
	}
	for giver, answers := range r.reached {
		// On an open installation a giver that is not to be reached knows by the plan that it has to use the hub.
		if !answers && (r.exchange.key != nil || !r.exchange.throughHub(giver, r.exchange.node.Name)) {
			go r.exchange.askForHub(r.context, giver)
		}
	}
	go r.attend()
	r.err = r.fetch.Run(r.context)
}

// attend logs how far the transfer is, and asks a giver that cannot be reached any more to use the hub.
func (r *Receiver) attend() {
	asked := map[string]bool{theHub: true}
	for Pause(r.context, lookEvery) {
		progress := r.fetch.Progress()
		if progress.Done == progress.Total {
			continue
		}
		slog.Info("units are on their way",
			"node", r.exchange.node.Name, "negotiation", r.exchange.negotiation, "progress", progress.String())
		for _, source := range progress.Sources {
			lost := source.State == shards.Away || source.State == shards.Stalled
			if lost && !asked[source.Name] {
				asked[source.Name] = true
				go r.exchange.askForHub(r.context, source.Name)
			}
		}
	}
}

// Fetch fills data, of the offered length, with a unit that all its holders offered alike, from all of them at a time,
// and returns it verified. Many units may be fetched at once. Nothing is written into data once Fetch has returned.
func (r *Receiver) Fetch(transfer events.Transfer, offers []events.Offer, data []byte) ([]byte, error) {
	select {
	case <-r.ready:
	case <-r.context.Done():
		return nil, r.context.Err()
	}
	if r.unable != nil {
		return nil, r.unable
	}
	parts, err := r.parts(transfer, offers)
	if err != nil {
		return nil, err
	}
	whole := make(chan struct{})
	if err := r.fetch.Add(shards.Layer{Into: data, Parts: parts, Whole: whole}); err != nil {
		return nil, err
	}
	select {
	case <-whole:
	case <-r.ended:
		return nil, r.disputed(cmp.Or(r.err, r.context.Err(), errEnded))
	}
	if digest := digestOf(data, verified(parts)); digest != offers[0].Digest {
		return nil, &Disputed{alone(parts, offers), fmt.Errorf("expected %s, got %s", offers[0].Digest, digest)}
	}
	return data, nil
}

// Disputed is a unit that is not what was offered, and those by whose offer or bytes it is not.
type Disputed struct {
	Givers []string
	reason error
}

func (d *Disputed) Error() string { return d.reason.Error() }

// Unwrap returns the reason.
func (d *Disputed) Unwrap() error { return d.reason }

// disputed names who served other bytes than a part's. Bytes that the hub served are those of the givers that use it.
func (r *Receiver) disputed(err error) error {
	corrupt, is := errors.AsType[*queue.Corrupt](err)
	if !is || len(corrupt.Served) == 0 {
		return err
	}
	givers := slices.DeleteFunc(slices.Clone(corrupt.Served), func(name string) bool { return name == theHub })
	if len(givers) < len(corrupt.Served) {
		for _, giver := range r.exchange.Givers() {
			if !r.reached[giver] {
				givers = append(givers, giver)
			}
		}
	}
	return &Disputed{givers, err}
}

// alone returns the givers of parts that nobody else offers alike, where all parts are what they were offered as and the unit is
// not; all givers, where there is no such part.
func alone(parts []shards.Part, offers []events.Offer) (givers []string) {
	var all []string
	for _, part := range verified(parts) {
		var alike []string
		for _, offer := range offers {
			if slices.Contains(offer.Parts, part) {
				alike = append(alike, offer.Node)
			}
		}
		all = append(all, alike...)
		if len(alike) == 1 && !slices.Contains(givers, alike[0]) {
			givers = append(givers, alike[0])
		}
	}
	if len(givers) == 0 {
		return slices.Compact(slices.Sorted(slices.Values(all)))
	}
	return givers
}

// verified returns parts as they were offered.
func verified(parts []shards.Part) []events.Part {
	var offered []events.Part
	for _, part := range parts {
		offered = append(offered, events.Part{Digest: part.Digest, First: part.First, End: part.End})
	}
	return offered
}

var errEnded = errors.New("the transfer ended before the unit was here")

// parts returns what is to be fetched of whom.
func (r *Receiver) parts(transfer events.Transfer, offers []events.Offer) ([]shards.Part, error) {
	var parts []shards.Part
	for i, source := range transfer.Sources {
		from, to := ByteRange(source.Shards, transfer, r.exchange.migration.ShardBytes, offers[i].Bytes)
		tiles, err := tile(offers[i].Parts, from, to)
		if err != nil {
			return nil, &Disputed{[]string{source.Node}, fmt.Errorf("from %s: %w", source.Node, err)}
		}
		giver := source.Node
		if !r.reached[giver] {
			giver = theHub
		}
		for _, part := range tiles {
			parts = append(parts, shards.Part{
				Digest: part.Digest, First: part.First, End: part.End,
				Sources: []string{giver}, Spares: r.spares(part, offers, giver),
			})
		}
	}
	return parts, nil
}

// spares are the other holders of a part that are reached, and the hub: a giver that cannot be reached any more is
// asked to put it there.
func (r *Receiver) spares(part events.Part, offers []events.Offer, giver string) []string {
	var names []string
	if giver != theHub {
		names = append(names, theHub)
	}
	for _, offer := range offers {
		if r.reached[offer.Node] && offer.Node != giver && slices.Contains(offer.Parts, part) {
			names = append(names, offer.Node)
		}
	}
	return names
}

// Seconds returns how long ago the receiver began.
func (r *Receiver) Seconds() float64 { return time.Since(r.opened).Seconds() }

// Received tells what came from whom.
func (r *Receiver) Received() []events.Received {
	select {
	case <-r.ready:
	default:
		return nil
	}
	if r.unable != nil {
		return nil
	}
	return Received(r.fetch.Progress())
}
