package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
)

// Bytes sent to measure a link's bandwidth while a negotiation waits: 5 ms at 1 Gbit/s.
const measureBytes = 512 << 10

// Steps between the one under way and the one a node promises to stop after. One more than the least gives the
// commit time to arrive first, so that a plan that moves nothing stops nobody.
const promiseAhead = 2

// answer says what can be said without the trainer's state. Called with the mutex held.
func (s *Session) answer() {
	v := &s.view
	if v.opening != nil && !v.opening.payload.Abandon && !v.connected {
		v.connected = true
		go s.connect(*v.opening, v.trained(s.config.Node), v.done)
	}
	if v.start != nil && v.following == nil && v.schedule == nil && s.follower != nil {
		s.follow(*v.start)
	}
	if v.prepared != nil && v.promise == nil {
		stop := v.stopStep(s.config.Node, s.config.TotalSteps)
		v.promise = &stop
		prepared := v.prepared
		s.say(s.speaker.Say(prepared.event, events.Promised, s.config.Node,
			&events.Promise{Negotiation: prepared.payload.Negotiation, Node: s.config.Node, StopStep: stop}))
	}
}

// trained returns the layers the node trains under the newest plan it knows, as holdings of whatever step it will
// stop at.
func (v *view) trained(node string) []events.Holding {
	plan := v.newest()
	if plan == nil {
		return nil
	}
	var holdings []events.Holding
	for _, layers := range plan.UnitsOf(node) {
		holdings = append(holdings, events.Holding{Units: layers, Steps: []uint64{v.done}, Current: true})
	}
	return holdings
}

// stopStep returns the step to promise: beyond the one under way, and not beyond the end.
func (v *view) stopStep(node string, totalSteps uint64) uint64 {
	if v.idle(node) {
		return v.done
	}
	stop := v.done + promiseAhead
	stop = max(stop, v.newest().ResumeStep)
	if totalSteps > 0 {
		stop = min(stop, totalSteps)
	}
	return stop
}

// consent answers an opening that abandons the step under way.
func (s *Session) consent(holdings []events.Holding) {
	v := &s.view
	v.consented = true
	if v.plan == nil && v.opening.payload.Generation > 1 {
		holdings = nil // a newcomer could make step 0, but the cluster is past it
	}
	s.say(s.speaker.Say(v.opening.event, events.Consented, s.config.Node, &events.Consent{
		Negotiation: v.opening.payload.Negotiation, Node: s.config.Node, Incarnation: v.incarnation,
		Accepted: true, Step: v.done, Holdings: holdings,
	}))
}

// connect opens and measures the links that an opening asks of this node, and consents.
func (s *Session) connect(opening heard[events.Opening], holdings []events.Holding, done uint64) {
	consent := &events.Consent{
		Negotiation: opening.payload.Negotiation, Node: s.config.Node, Accepted: true, Step: done, Holdings: holdings,
	}
	var mutex sync.Mutex
	var probes sync.WaitGroup
	for _, pair := range opening.payload.Connect {
		peer, ours := otherEnd(pair, s.config.Node)
		if !ours {
			continue
		}
		probes.Go(func() {
			measured, err := s.measure(peer, addressOf(peer, opening.payload.Members), measureBytes)
			mutex.Lock()
			defer mutex.Unlock()
			if err == nil {
				consent.Measurements = append(consent.Measurements, measured)
			} else if asked(opening.payload.Changes, pair) {
				consent.Accepted, consent.Reason = false, fmt.Sprintf("link to %s: %v", peer, err)
			}
		})
	}
	probes.Wait()
	slices.SortFunc(consent.Measurements, func(a, b events.Measurement) int {
		if a.To < b.To {
			return -1
		}
		return 1
	})
	s.mutex.Lock()
	defer s.mutex.Unlock()
	consent.Incarnation = s.view.incarnation
	s.say(s.speaker.Say(opening.event, events.Consented, s.config.Node, consent))
}

func otherEnd(pair events.Pair, node string) (peer string, ours bool) {
	switch node {
	case pair.A:
		return pair.B, true
	case pair.B:
		return pair.A, true
	}
	return "", false
}

func addressOf(node string, members []events.Member) string {
	for _, member := range members {
		if member.Node == node {
			return member.Address
		}
	}
	return ""
}

// asked reports whether a pair is a link that somebody asked for, rather than one of a joiner's, of which some may
// be missing.
func asked(changes []events.Change, pair events.Pair) bool {
	return slices.ContainsFunc(changes, func(change events.Change) bool {
		asks := change.Kind == events.ChangeConnect || change.Kind == events.ChangeRestored
		return asks && events.PairOf(change.Node, change.Peer) == pair
	})
}

func (s *Session) measure(peer, address string, bytes int) (events.Measurement, error) {
	measured := events.Measurement{From: s.config.Node, To: peer}
	if s.config.Measure == nil {
		return measured, fmt.Errorf("the trainer cannot measure links")
	}
	ctx, cancel := context.WithTimeout(s.context, 2*time.Second)
	defer cancel()
	var err error
	measured.RoundTripSeconds, measured.BandwidthBytesPerSecond, err = s.config.Measure(ctx, address, bytes)
	return measured, err
}

// say publishes in the background until the stream has acknowledged: the hub may be away for a while, and the
// trainer must not stand still for it. Answers to a negotiation that is over do no harm.
func (s *Session) say(event events.Event) {
	go func() {
		ack, err := s.bus.Publish(s.context, event)
		if err != nil && s.context.Err() == nil {
			slog.Error("event not said", "node", s.config.Node, "event", event.Kind, "error", err)
			return
		}
		slog.Debug("said", "node", s.config.Node, "event", event.Kind, "subject", event.Subject, "sequence", ack.Sequence)
	}()
}
