package world

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/simulation/loop"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// hub is the modelled JetStream, and what becomes of requests on their way to it.
type hub struct {
	*stream.Server
	skew   time.Duration // its clock is ahead of the world's by so much
	odds   map[stream.Fate]float64
	heard  map[*stream.Stream]uint64 // up to which the world has looked
	made   time.Time                 // its store, where that was wiped
	before map[*stream.Stream]uint64 // messages that are gone with a store
	lost   uint64                    // plans before the first that is kept to be judged
	backup *stream.Backup            // nil: there is none
	log    map[*stream.Stream][]events.Event
	apart  int // bytes of the largest payload that travels in its event
}

// payloadsApart is how long an event's data may be to travel in the event. It is small, so that plans take the other way.
const payloadsApart = 4 << 10

func newHub(c Cluster) *hub {
	server := stream.NewServer(events.EventStream, events.PlanStream, stream.Limits{}, c.Seed%2 == 0)
	h := &hub{
		Server: server, odds: map[stream.Fate]float64{}, apart: payloadsApart,
		heard: map[*stream.Stream]uint64{}, before: map[*stream.Stream]uint64{}, log: map[*stream.Stream][]events.Event{},
	}
	if c.Provisioned {
		h.provision()
	}
	return h
}

// provision gives the stores the bounds and ages that shared/bus gives them. The streams have theirs.
func (h *hub) provision() {
	h.apart = events.MaxEventBytes
	for _, bucket := range events.KeyValues {
		if bucket.Bucket == events.SnapshotBucket {
			h.Snapshots.Bound(bucket.MaxBytes)
		}
	}
	for _, store := range events.ObjectStores {
		switch store.Bucket {
		case events.PayloadBucket:
			h.Events.Payloads.Keep(store)
		case events.PlanPayloadBucket:
			h.Plans.Payloads.Keep(store)
		}
	}
}

// fates are drawn in this order.
var fates = []stream.Fate{stream.Lost, stream.Unheard, stream.Lagging}

// fate draws what becomes of a request.
func (h *hub) fate(random *rand.Rand) stream.Fate {
	for _, fate := range fates {
		if odds := h.odds[fate]; odds > 0 && random.Float64() < odds {
			return fate
		}
	}
	return stream.Answered
}

// storeNames are what of the hub may be full.
var storeNames = []string{"events", "plans", "payloads", "memories"}

// stores are the bounds of what the hub holds, in bytes. Zero is none.
func (h *hub) stores() map[string]func(bytes int64) {
	return map[string]func(int64){
		"events": h.Events.Bound, "plans": h.Plans.Bound, "payloads": h.Events.Payloads.Bound, "memories": h.Snapshots.Bound,
	}
}

// away reports whether nobody listens.
func (h *hub) away() bool { return h.State() == stream.Down }

// fresh returns what a stream has stored since the world looked last, as its readers will get it.
func (h *hub) fresh(s *stream.Stream) []events.Event {
	if h.State() != stream.Up && h.State() != stream.Isolated {
		return nil
	}
	var fresh []events.Event
	for {
		stored, err := s.Get(h.heard[s]+1, stream.Answered)
		if err != nil {
			break
		}
		h.heard[s]++
		fresh = append(fresh, loop.Heard(&stored))
	}
	return fresh
}

// plans returns all committed plans.
func (h *hub) plans() []events.Event { return h.log[h.Plans] }

// look sees what was stored, and wakes whoever reads it.
func (w *World) look() {
	for _, s := range []*stream.Stream{w.hub.Events, w.hub.Plans} {
		fresh := w.hub.fresh(s)
		for _, event := range fresh {
			w.noteSecondLife(event)
			event.Sequence += w.hub.before[s]
			w.stored(event)
			w.keep(s, event)
		}
		switch {
		case len(fresh) > 0 && w.isLarge():
			w.wakeHearers(fresh)
			w.wakeServices()
		case len(fresh) > 0:
			w.wake()
		}
	}
	if w.longer() {
		w.hub.Events.Thin(w.hubTime().Add(-readAfter), loop.Thin)
	}
	w.judgeOften()
}

// readAfter is after how long everybody has read an event who reads it at all. A host that is lost is away for half an hour.
const readAfter = 2 * time.Hour

// keep keeps an event to be judged. Only the newest plan is kept of a log that is longer than is judged, and a mark that there were others.
func (w *World) keep(s *stream.Stream, event events.Event) {
	log := w.hub.log[s]
	switch {
	case !w.longer():
		w.unjudged++
	case s == w.hub.Events:
		return
	case len(log) > 0:
		log[len(log)-1] = events.Event{}
	}
	w.hub.log[s] = append(log, event)
}

// longer reports whether the log is longer than is kept and judged.
func (w *World) longer() bool { return w.judged > 0 && len(w.hub.log[w.hub.Events]) >= w.judged }

// mostAwake are the nodes that all look for messages at each that is stored, whoever is to hear it. Among more, looking
// in vain is most of what happens.
const mostAwake = 64

func (w *World) isLarge() bool { return len(w.nodes) > mostAwake }

// wakeHearers has those look for messages who hear some of them.
func (w *World) wakeHearers(fresh []events.Event) {
	for _, event := range fresh {
		switch n := w.byName(event.Subject); {
		case event.Kind == events.MembershipRefused && n != nil:
			n.read()
		case event.Kind != events.MembershipRefused && w.agentsHear[event.Kind]:
			w.wakeNodes()
			return
		}
	}
}

// wake has everybody look for messages.
func (w *World) wake() {
	w.wakeNodes()
	w.wakeServices()
}

func (w *World) wakeNodes() {
	for _, n := range w.nodes {
		n.read()
	}
}

func (w *World) wakeServices() {
	for _, name := range serviceNames {
		for _, i := range slices.Clone(w.services[name].running) { // one may end
			i.go_()
		}
	}
}
