package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/reknit/reknit/events"
)

// mostAgain is the share of what readers are sent that may come twice.
const mostAgain = 0.05

// mark is how far everything was when a row began.
type mark struct {
	sum                        sum
	receipts, offers, caughtUp int
	aborted                    int // negotiations
}

func (s *scene) mark() mark {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return mark{s.tap.so(), len(s.receipts), len(s.offers), len(s.caughtUp), s.observer.Scene().Heard[events.Aborted]}
}

// received is the bytes that receipts tell since a mark, of nodes and of the hub, and those of the units in them. Called with the
// mutex held.
func (s *scene) received(since mark) (nodes, hub, units int64) {
	for _, receipt := range s.receipts[since.receipts:] {
		for _, source := range receipt.Sources {
			if source.From == "" {
				hub += source.Bytes
			} else {
				nodes += source.Bytes
			}
		}
		for _, unit := range receipt.Units {
			units += unit.Bytes
		}
	}
	return nodes, hub, units
}

// judge waits until the servers have passed on what the receipts tell, and judges that this is all that moved: the bytes of the parts
// that readers were answered whole equal what the receipts tell.
func (s *scene) judge(ctx context.Context, name string, since mark) error {
	var nodes, hub, units int64
	came := s.await(ctx, "what the receipts tell", func() bool {
		nodes, hub, units = s.received(since)
		so := s.tap.so().less(since.sum)
		return nodes+hub > 0 && so.ofStores >= nodes && so.ofHub >= hub
	})
	so := s.tap.so().less(since.sum)
	failures := []error{came, errors.Join(s.failures...)}
	expect := func(holds bool, format string, arguments ...any) {
		if !holds {
			failures = append(failures, fmt.Errorf(format, arguments...))
		}
	}
	expect(so.core == 0, "%d bytes of state over core NATS, on %s", so.core, so.coreWas)
	expect(so.corrupt == 0, "%d parts are not what their digest says", so.corrupt)
	expect(units > 0 && units <= nodes+hub+s.preCopied(since), "%d bytes of units are told, of %d that came", units, nodes+hub)
	moved := so.store + so.hub
	expect(float64(so.again) <= mostAgain*float64(moved), "%d of %d bytes were read twice", so.again, moved)
	aborted := s.observer.Scene().Heard[events.Aborted] - since.aborted
	expect(aborted > 0 || so.ofStores == nodes && so.ofHub == hub, "verified parts have %d bytes of stores and %d of the hub, receipts tell "+
		"%d and %d", so.ofStores, so.ofHub, nodes, hub)
	err := errors.Join(failures...)
	verdict := map[bool]string{true: "passed", false: "FAILED"}[err == nil]
	fmt.Printf("%-8s %-22s receipts %8d B from nodes, %8d B from the hub; read %8d B of stores, %8d B of the hub, %d B twice; "+
		"core NATS %d B; %d parts of %d B verified; %d negotiations aborted, for which nobody tells receipts\n",
		verdict, name, nodes, hub, so.store, so.hub, so.again, so.core, so.verified, so.ofStores+so.ofHub, aborted)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// preCopied is the bytes of units that came while training went on, which count in receipts as their sources'.
func (s *scene) preCopied(since mark) (bytes int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, caughtUp := range s.caughtUp[since.caughtUp:] {
		if caughtUp.Reason == "" {
			bytes += caughtUp.Bytes
		}
	}
	return bytes
}

// offered returns an offer of some node's own store since a mark, and where that store is.
func (s *scene) offered(since mark) (offer events.Offer, address string) {
	for _, offer := range s.offers[since.offers:] {
		if address := s.stores[offer.Node]; address != "" && len(offer.Parts) > 0 {
			return offer, address
		}
	}
	return offer, ""
}
