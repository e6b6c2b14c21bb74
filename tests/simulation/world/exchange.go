package world

import (
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// exchange is the units that a process gives and takes in a negotiation.
type exchange struct {
	agent.Exchange
	given  map[int]version // by unit
	ahead  bool            // its units came while training went on, but for the last changes
	opened bool
}

// open begins an exchange. State that was pre-copied in the same negotiation is here but for the last changes.
func (p *process) open(e agent.Exchange) {
	next := &exchange{Exchange: e, given: map[int]version{}, opened: true}
	if before := p.exchange; before != nil {
		next.ahead = before.ahead && before.Negotiation == e.Negotiation
		before.opened = false
	}
	p.exchange = next
}

func (p *process) close(negotiation string) {
	if p.exchange != nil && p.exchange.Negotiation == negotiation {
		p.exchange.opened = false
		p.exchange = nil
	}
}

// export gives a unit to who is to have it.
func (p *process) export(a agent.Export) agent.Result {
	found, ok := p.state.find(a.Unit, a.Step)
	if a.Snapshot != "" {
		id := retention.ID{Step: a.Step, Plan: a.Snapshot}
		found, ok = p.node.readable(p.bucket)[id][a.Unit]
		ok = ok && !p.isTorn(id, a.Unit)
	}
	if !ok {
		return agent.Failed{Task: a.Task, Reason: "it does not hold the unit at that step"}
	}
	if p.exchange != nil {
		p.exchange.given[a.Unit] = found
	}
	bytes := p.job.UnitBytes()[a.Unit]
	digest := digestOf(found.value)
	return agent.Exported{Task: a.Task, Digest: digest, Bytes: bytes, Parts: []events.Part{{Digest: digest, End: bytes}}}
}

// imported is a unit that arrived and was verified; the trainer's state takes it at the boundary.
type imported struct {
	agent.Fetch // for the interface's sake: work of the boundary is an action
	exchange    *exchange
	arrived     version
	began       time.Duration
}

// fetch takes a unit from those who give it, at the sum of what their links carry.
func (p *process) fetch(a agent.Fetch) { p.fetchAgain(a, p.exchange, p.now, 0) }

func (p *process) fetchAgain(a agent.Fetch, e *exchange, began, moved time.Duration) {
	if e == nil || !e.opened {
		return
	}
	found, rate := p.sources(a)
	if rate == 0 {
		p.later(time.Second, func() { p.fetchAgain(a, e, began, 0) })
		return
	}
	takes := time.Duration(float64(a.Transfer.Bytes) / rate * float64(time.Second))
	if e.ahead {
		takes /= 10
	}
	if moved < takes {
		slice := min(takes-moved, 500*time.Millisecond)
		p.later(slice, func() { p.fetchAgain(a, e, began, moved+slice) })
		return
	}
	if digestOf(found.value) != a.Offers[0].Digest {
		p.do(p.agent.Done(agent.Failed{Task: a.Task, Reason: "what came is not what was offered", Givers: p.liars(a)}))
		return
	}
	p.work = append(p.work, imported{Fetch: a, exchange: e, arrived: found, began: began})
	p.workOn()
}

// sources returns a copy of a unit that is given, and how fast it comes: zero while nobody can be reached.
func (p *process) sources(a agent.Fetch) (found version, rate float64) {
	for _, offer := range a.Offers {
		from := p.byName(offer.Node).process
		if from == nil || from.paused || from.exchange == nil || from.exchange.Negotiation != offer.Negotiation {
			continue
		}
		given, gives := from.exchange.given[a.Transfer.Unit]
		if !gives || digestOf(given.value) != offer.Digest && from.node.lies == nil {
			continue
		}
		relayed := slices.Contains(p.exchange.Plan.Relays, events.PairOf(p.node.name, offer.Node))
		switch {
		case !relayed && p.direct(p.node.name, offer.Node):
			found, rate = given, rate+p.bandwidth(offer.Node, p.node.name)
		case p.toHub(p.node.name) && p.toHub(offer.Node):
			found, rate = given, rate+usualBandwidth/4
		}
	}
	return found, rate
}

// liars are the givers whose bytes are not what they offered: an agent finds out by asking one alone for a whole part.
func (p *process) liars(a agent.Fetch) (givers []string) {
	for _, offer := range a.Offers {
		from := p.byName(offer.Node).process
		if from == nil || from.exchange == nil {
			continue
		}
		if given, gives := from.exchange.given[a.Transfer.Unit]; gives && digestOf(given.value) != offer.Digest {
			givers = append(givers, offer.Node)
		}
	}
	return givers
}

// take imports what arrived.
func (p *process) take(i imported) agent.Result {
	if !i.exchange.opened {
		return agent.Failed{Task: i.Task, Reason: "the exchange was closed"}
	}
	if p.stands != nil {
		return agent.Failed{Task: i.Task, Reason: "expected none, for the node has no script"}
	}
	p.state.aside[i.Transfer.Unit] = &i.arrived
	delete(p.witnesses[i.Transfer.Unit], p) // it is no second voice for what it got
	seconds := (p.now - i.began).Seconds()
	share := i.Transfer.Bytes / int64(len(i.Offers))
	fetched := agent.Fetched{Task: i.Task, Seconds: seconds}
	for _, offer := range i.Offers {
		fetched.Sources = append(fetched.Sources, events.Received{
			From: offer.Node, Bytes: share, BytesPerSecond: p.bandwidth(offer.Node, p.node.name),
		})
	}
	return fetched
}

// preCopy brings units while training goes on.
func (p *process) preCopy(a agent.PreCopy) {
	p.open(a.Exchange)
	e := p.exchange
	var givers []string
	var bytes int64
	var seconds float64
	for _, transfer := range e.Plan.Migration.Transfers {
		if transfer.To != p.node.name {
			continue
		}
		rate := 0.0
		for _, source := range transfer.Sources {
			givers, rate = append(givers, source.Node), rate+p.bandwidth(source.Node, p.node.name)
		}
		bytes, seconds = bytes+transfer.Bytes, seconds+float64(transfer.Bytes)/rate
	}
	if len(givers) == 0 {
		return
	}
	takes := time.Duration(seconds * float64(time.Second))
	p.later(takes, func() {
		if !e.opened {
			return
		}
		caught := agent.CaughtUp{Task: a.Task, Bytes: bytes, Seconds: takes.Seconds()}
		for _, giver := range givers {
			from := p.byName(giver).process
			if from == nil || from.paused || !p.direct(p.node.name, giver) {
				caught.Reason = giver + " cannot be reached"
				break
			}
			caught.Step = max(caught.Step, from.done)
		}
		e.ahead = caught.Reason == ""
		p.do(p.agent.Done(caught))
	})
}

// measure opens and measures the links to peers.
func (p *process) measure(a agent.Measure) {
	measured := agent.Measured{Task: a.Task, Unreached: map[string]string{}}
	takes := usualRoundTrip
	for _, peer := range a.Peers {
		if measurement, ok := p.measured(peer.Node); ok {
			measured.Measurements = append(measured.Measurements, measurement)
			continue
		}
		takes = 2 * time.Second
		measured.Unreached[peer.Node] = "no answer within 2 s"
	}
	p.later(takes, func() { p.do(p.agent.Done(measured)) })
}

func (p *process) measured(peer string) (events.Measurement, bool) {
	other := p.byName(peer).process
	if other == nil || other.paused || !p.direct(p.node.name, peer) {
		return events.Measurement{}, false
	}
	measured := events.Measurement{
		From: p.node.name, To: peer, RoundTripSeconds: usualRoundTrip.Seconds(),
		BandwidthBytesPerSecond: p.bandwidth(p.node.name, peer) * p.node.reads,
	}
	if p.scatter > 0 {
		measured.BandwidthBytesPerSecond *= 1 + p.scatter*(2*p.random.Float64()-1)
	}
	return measured, true
}
