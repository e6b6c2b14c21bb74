package transfer

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/seal"
	"github.com/reknit/reknit/services/agent/shards"
)

const (
	unitsAtOnce = 4 // hashed at a time
	earlyParts  = 2 // in the hub before their unit's manifest is told: who hears it finds them there
	putsAtOnce  = 2 // parts of a unit that travel to the hub at a time
)

// Sender gives units until its context ends with the negotiation: from the memory that they lie in, and through the hub
// to those who cannot reach this node.
type Sender struct {
	exchange *Exchange
	context  context.Context
	before   <-chan struct{} // closed when nothing of the exchange before is left: some parts may be alike
	slots    chan struct{}   // for units that are being hashed
	units    sync.WaitGroup  // that are being exported and offered

	mutex  sync.Mutex
	closed bool // nothing is exported any more
	given  []given
	viaHub map[string]seal.Key // of receivers that cannot reach this node's store, and their keys
	inHub  []string            // names of parts that were put there
}

// given is a part that this node's store gives, whom it is to go to, and who hears that it cannot.
type given struct {
	offering  *shards.Offering
	receivers []string
	failed    func(error)
}

// exported is a unit as its trainer gave it.
type exported struct {
	offer  events.Offer
	data   []byte
	failed func(error)
}

// NewSender returns a sender whose Export is called for each unit that the exchange has this node give.
func NewSender(ctx context.Context, exchange *Exchange, before <-chan struct{}) *Sender {
	return &Sender{
		exchange: exchange, context: ctx, before: before,
		slots: make(chan struct{}, unitsAtOnce), viaHub: map[string]seal.Key{},
	}
}

// Export takes a unit's bytes, which stay as they are until Withdraw, and offers it behind the caller's back: offered hears
// its manifest when it can be fetched, failed why it cannot be given.
func (s *Sender) Export(unit int, export func() ([]byte, error), offered func(events.Offer), failed func(error)) {
	if !s.begin() {
		return
	}
	defer s.units.Done()
	select {
	case s.slots <- struct{}{}:
	case <-s.context.Done():
		return
	}
	data, err := export()
	if err != nil {
		<-s.slots
		failed(err)
		return
	}
	s.units.Go(func() {
		defer func() { <-s.slots }()
		hashed, err := s.hashed(unit, data, failed)
		if err == nil {
			err = s.offer(hashed, offered)
		}
		if err != nil && s.context.Err() == nil {
			failed(err)
		}
	})
}

// begin notes that a unit is being exported, unless it is too late for that.
func (s *Sender) begin() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return false
	}
	s.units.Add(1)
	return true
}

// Withdraw ends the giving: when it returns, nothing reads the units' memory any more.
func (s *Sender) Withdraw() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closed = true
	var offerings []*shards.Offering
	for _, part := range s.given {
		offerings = append(offerings, part.offering)
	}
	s.exchange.node.Store.Withdraw(offerings...)
}

// hashed returns a unit with its manifest, unless the negotiation ends before all is hashed.
func (s *Sender) hashed(unit int, data []byte, failed func(error)) (exported, error) {
	migration, bytes := s.exchange.migration, int64(len(data))
	offer := events.Offer{Unit: unit, Bytes: bytes, Parts: partsOf(unit, migration, bytes)}
	for i, part := range offer.Parts {
		if err := s.context.Err(); err != nil {
			return exported{}, err
		}
		offer.Parts[i].Digest = events.Digest(data[part.First:part.End])
	}
	offer.Digest = digestOf(data, offer.Parts)
	return exported{offer, data, failed}, nil
}

// offer has the node's store give a unit's parts, and tells its manifest. Those for the hub it puts there.
func (s *Sender) offer(unit exported, offered func(events.Offer)) error {
	select {
	case <-s.before:
	case <-s.context.Done():
		return s.context.Err()
	}
	relayed := s.give(unit)
	early := min(earlyParts, len(relayed))
	if err := s.putAll(relayed[:early]); err != nil {
		return err
	}
	offered(unit.offer)
	return s.putAll(relayed[early:])
}

// give has the node's store give a unit's parts, those that others are to give as well, should one of them fail. It
// returns those that go through the hub, too.
func (s *Sender) give(unit exported) (relayed []toHub) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return nil
	}
	for _, part := range unit.offer.Parts {
		receivers := s.receivers(unit.offer, part)
		data := unit.data[part.First:part.End]
		s.given = append(s.given, given{s.exchange.node.Store.Offer(part.Digest, data), receivers, unit.failed})
		for _, key := range s.relays(receivers) {
			relayed = append(relayed, toHub{part.Digest, data, key})
		}
	}
	return relayed
}

// relays returns a key for each receiver that takes what this node gives from the hub; on an open installation nil for all of them
// together. Called with the mutex held.
func (s *Sender) relays(receivers []string) (keys []seal.Key) {
	for _, receiver := range receivers {
		key, asked := s.viaHub[receiver]
		if s.exchange.node.Channels == nil {
			if asked || s.exchange.throughHub(s.exchange.node.Name, receiver) {
				return []seal.Key{nil}
			}
		} else if asked {
			keys = append(keys, key)
		}
	}
	return keys
}

// Serve waits until the negotiation ends, and then withdraws what was given.
func (s *Sender) Serve() {
	<-s.context.Done()
	s.Withdraw()
	s.units.Wait()
	<-s.before
	s.mutex.Lock()
	inHub := s.inHub
	s.mutex.Unlock()
	leaveHub(s.exchange.node, inHub)
}

func (s *Sender) putAll(parts []toHub) error {
	puts, ctx := errgroup.WithContext(s.context)
	puts.SetLimit(putsAtOnce)
	for _, part := range parts {
		puts.Go(func() error { return s.putIntoHub(ctx, part) })
	}
	return puts.Wait()
}

// receivers are the nodes to which this one is to give a part.
func (s *Sender) receivers(offer events.Offer, part events.Part) []string {
	var receivers []string
	for _, transfer := range s.exchange.migration.Transfers {
		given, gives := ShardsOf(s.exchange.node.Name, transfer)
		if transfer.Unit != offer.Unit || !gives {
			continue
		}
		first, end := ByteRange(given, transfer, s.exchange.migration.ShardBytes, offer.Bytes)
		if first <= part.First && part.End <= end {
			receivers = append(receivers, transfer.To)
		}
	}
	return receivers
}
