package transfer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
)

const (
	unitsAtOnce = 4         // exported and not yet stored: what a node gives is in memory so often, beside its store
	spareBytes  = 256 << 20 // of units that are kept to be stored later, if at all
	earlyParts  = 2         // stored before their unit's manifest is told: who hears it finds them there

	// PutsAtOnce is how many parts of a unit are stored at a time: one is hashed while another travels.
	PutsAtOnce = 2
)

// Sender gives units until its context ends with the negotiation.
type Sender struct {
	exchange *Exchange
	context  context.Context
	before   <-chan struct{}            // closed when nothing of the exchange before is left: some parts may be alike
	leads    func(receiver string) bool // whether a receiver pre-copies from here: it needs manifests only
	slots    chan struct{}              // for units that are exported and not yet stored
	exports  chan struct{}              // closed when all units were exported
	units    sync.WaitGroup             // that are being exported and stored

	mutex  sync.Mutex
	due    int  // units that are still to be exported
	closed bool // nothing is exported any more
	stored []stored
	spares []spare
	viaHub map[string]bool // receivers that cannot reach this node's store
	inHub  []string        // digests of parts that were put there
}

// stored is a part in this node's store, whom it is to go to, and who hears that it cannot.
type stored struct {
	digest    string
	receivers []string
	failed    func(error)
}

// spare is the parts of a unit that others are to give.
type spare struct {
	unit  exported
	parts []events.Part
}

// exported is a unit as its trainer gave it.
type exported struct {
	offer  events.Offer
	data   []byte
	failed func(error)
}

// NewSender returns a sender whose Export is called once for each unit that the exchange has this node give.
func NewSender(
	ctx context.Context, exchange *Exchange, before <-chan struct{}, leads func(receiver string) bool,
) *Sender {
	s := &Sender{
		exchange: exchange, context: ctx, before: before, leads: leads,
		slots: make(chan struct{}, unitsAtOnce), viaHub: map[string]bool{},
		exports: make(chan struct{}), due: len(exchange.Given()),
	}
	if s.due == 0 {
		close(s.exports)
	}
	return s
}

// Export takes a unit's bytes, once there is room for them, and offers it behind the caller's back: offered hears its
// manifest when its first parts are stored, failed why the unit cannot be given.
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
		err := s.offer(newExported(unit, data, s.exchange.migration, failed), offered)
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
	if s.due--; s.due == 0 {
		close(s.exports)
	}
	return true
}

// end waits until nothing of a unit is read any more.
func (s *Sender) end() {
	s.mutex.Lock()
	s.closed = true
	s.mutex.Unlock()
	s.units.Wait()
}

func newExported(unit int, data []byte, migration events.Migration, failed func(error)) exported {
	offer := events.Offer{
		Unit: unit, Digest: events.Digest(data), Bytes: int64(len(data)),
		Parts: partsOf(unit, migration, int64(len(data))),
	}
	for i, part := range offer.Parts {
		offer.Parts[i].Digest = events.Digest(data[part.First:part.End])
	}
	return exported{offer, data, failed}
}

// offer stores the first parts that this node is to give, tells the unit's manifest, and stores the rest.
func (s *Sender) offer(unit exported, offered func(events.Offer)) error {
	select {
	case <-s.before:
	case <-s.context.Done():
		return s.context.Err()
	}
	var now, later []events.Part
	for _, part := range unit.offer.Parts {
		if s.awaited(s.receivers(unit.offer, part)) {
			now = append(now, part)
		} else {
			later = append(later, part)
		}
	}
	early := min(earlyParts, len(now))
	if err := s.putAll(unit, now[:early]); err != nil {
		return err
	}
	offered(unit.offer)
	if err := s.putAll(unit, now[early:]); err != nil {
		return err
	}
	if spare := (spare{unit, later}); !s.keep(spare) {
		s.putSpare(spare)
	}
	return nil
}

// awaited reports whether one of a part's receivers has nothing of its unit yet.
func (s *Sender) awaited(receivers []string) bool {
	return slices.ContainsFunc(receivers, func(node string) bool { return !s.leads(node) })
}

// keep keeps a unit's bytes for later, where there is room.
func (s *Sender) keep(kept spare) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	bytes := len(kept.unit.data)
	for _, other := range s.spares {
		bytes += len(other.unit.data)
	}
	if bytes > spareBytes {
		return false
	}
	s.spares = append(s.spares, kept)
	return true
}

// putSpare stores the parts of a unit that may not be needed. Where there is no room for them, there are none.
func (s *Sender) putSpare(kept spare) {
	if err := s.putAll(kept.unit, kept.parts); err != nil && s.context.Err() == nil {
		slog.Warn("a unit has no spare here, should another giver fail",
			"node", s.exchange.node.Name, "unit", kept.unit.offer.Unit, "error", err)
	}
}

// Serve waits until the negotiation ends, and then retires what was stored. What others were to give, and what was
// pre-copied, is stored only where the exchange lasts: something failed then.
func (s *Sender) Serve() {
	select {
	case <-s.exports:
		s.units.Wait()
	case <-s.context.Done():
		s.end()
	}
	if Pause(s.context, shards.SpareWait/2) {
		for _, kept := range s.spares {
			s.putSpare(kept)
		}
	}
	s.spares = nil
	<-s.context.Done()
	<-s.before
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, part := range s.stored {
		Retire(s.exchange.node, part.digest)
	}
	s.leaveHub()
}

// Retire removes parts from a node's store.
func Retire(node Node, digests ...string) {
	if err := node.Store.Retire(node.Context, digests...); err != nil && node.Context.Err() == nil {
		slog.Warn("parts not retired; they stay until this process ends", "node", node.Name, "error", err)
	}
}

func (s *Sender) putAll(unit exported, parts []events.Part) error {
	puts, ctx := errgroup.WithContext(s.context)
	puts.SetLimit(PutsAtOnce)
	for _, part := range parts {
		puts.Go(func() error { return s.put(ctx, unit, part) })
	}
	return puts.Wait()
}

// put stores a part: in the hub's store too where a receiver cannot reach this node's, and only there where this
// node's is full.
func (s *Sender) put(ctx context.Context, unit exported, part events.Part) error {
	data, receivers := unit.data[part.First:part.End], s.receivers(unit.offer, part)
	err := s.exchange.node.Store.PutAs(ctx, part.Digest, data)
	if errors.Is(err, shards.ErrFull) && len(receivers) > 0 {
		slog.Warn("a part goes through the hub", "node", s.exchange.node.Name, "error", err)
		return s.putIntoHub(ctx, part.Digest, data)
	}
	if err != nil {
		return err
	}
	s.mutex.Lock()
	s.stored = append(s.stored, stored{part.Digest, receivers, unit.failed})
	viaHub := slices.ContainsFunc(receivers, func(receiver string) bool {
		return s.viaHub[receiver] || s.exchange.throughHub(s.exchange.node.Name, receiver)
	})
	s.mutex.Unlock()
	if viaHub {
		return s.putIntoHub(ctx, part.Digest, data)
	}
	return nil
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
