package machine

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/merit"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// worthPlanning is the share of a step that a slow link must cost for a plan to be made for it alone: with it a step takes 1.14 times
// as long as without, and the planner lets no node that trains wait for less (services/planner/policy, withoutSlow).
const worthPlanning = 1.0 / 8

// heed negotiates what measurements change of who should train: a node that waits has links that suffice, or a link of the ring is
// known to slow all who train. Only data-parallel jobs have nodes that wait for their links. A node that brought about a change
// lately has the next one put off: it may be noise. O(nodes) for each node that waits whose links were measured or suffice, or for
// each that waits after another event than a measurement; and O(links) where a link of the ring is slow.
func (m *Machine) heed() {
	m.agenda.heeds = false
	plan := m.state.Plan
	if plan == nil || plan.Kind != events.DataParallel || m.state.Negotiation != nil || m.state.Hold.Active || m.state.Paused {
		return
	}
	m.letGo()
	changes := m.measuredChanges(plan)
	changes = slices.DeleteFunc(changes, func(change events.Change) bool {
		isKnown := func(other events.Change) bool { return other.Kind == change.Kind && other.Node == change.Node }
		return slices.ContainsFunc(m.state.Pending, isKnown) || !m.mayShift(change.Node)
	})
	if len(changes) == 0 {
		return
	}
	for _, change := range changes {
		change.Cause = m.cause.ID
		m.state.Pending = append(m.state.Pending, change)
	}
	m.looked = false // who takes part may be others then
	m.negotiate(protocol.Patient)
}

// measuredChanges are those of nodes that should have a place now, or no longer.
func (m *Machine) measuredChanges(plan *events.Plan) (changes []events.Change) {
	holds, suffice := plan.HoldsOfAll(), map[string]bool{}
	for _, idle := range plan.Idle {
		if m.looked && !m.maySuffice[idle.Node] {
			continue
		}
		if peer, suffices := m.suffices(holds, idle); suffices {
			suffice[idle.Node] = true
			changes = append(changes, events.Change{Kind: events.ChangeMeasured, Node: idle.Node, Peer: peer})
		}
	}
	m.looked, m.maySuffice = true, suffice
	if link, slow := m.slowing(plan); slow {
		changes = append(changes, events.Change{Kind: events.ChangeMeasured, Node: link.From, Peer: link.To})
	}
	return changes
}

// measurements are the kinds of event that change nothing that suffices depends on but the links that noteLink notes.
var measurements = []events.Kind{
	events.LinkMeasured, events.NodeProfiled, events.PlanActivated, events.PlanMeasured, events.TrainingDigested}

// suffices reports whether a node that waits has two links that are as good as its plan says that they must be, both ways, to those who
// train, and to whom one of them leads. Each end measures its own direction, so that nobody comes in on its word alone.
func (m *Machine) suffices(holds map[string]events.Range, idle events.Idle) (peer string, suffices bool) {
	if m.state.Members[idle.Node] == nil {
		return "", false
	}
	good := 0
	for node := range holds {
		if m.isGood(idle, idle.Node, node) && m.isGood(idle, node, idle.Node) {
			peer, good = max(peer, node), good+1
		}
	}
	return peer, good >= min(2, len(holds))
}

func (m *Machine) isGood(idle events.Idle, from, to string) bool {
	link := m.state.Links[linkKey(from, to)]
	off := link.Off()
	switch {
	case !isSure(link) || m.state.apart(from, to):
		return false
	case idle.NeedsBytesPerSecond > 0:
		return link.BandwidthBytesPerSecond*(1-off) >= idle.NeedsBytesPerSecond
	}
	return link.RoundTripSeconds*(1+off) <= idle.NeedsRoundTripSeconds
}

// isSure reports whether a link was measured more than once, and works.
func isSure(link events.Link) bool {
	return link.BandwidthBytesPerSecond > 0 && link.Off() < events.MostUncertainty && !link.Lost
}

// slowing returns the slowest link of the plan's ring where it costs all who train worthPlanning of a step more than was known when
// the plan was made or, where nothing was known then, than usual links cost. A link counts at its best now, and at its worst as it was
// known, so that measurements that scatter plan nothing. While the ends have other links that read slow and were probed once, these are
// waited for: nobody waits for such a link.
func (m *Machine) slowing(plan *events.Plan) (slowest events.Link, slow bool) {
	r, has := m.ring(plan)
	step, _ := m.state.Measured.StepSeconds()
	if !has || step == 0 {
		return slowest, false
	}
	took := 0.0
	for link := range r.links(m.state.Links) {
		if seconds := r.seconds(link.Measurement, -link.SurelyOff()); isSure(link) && seconds > took {
			slowest, took = link, seconds
		}
	}
	costs := func(planned float64) bool { return r.messages()*(took-planned) > worthPlanning*step }
	planned := m.state.Message
	if costs(planned) && planned == 0 {
		planned = r.seconds(m.usualSure(), slowest.SurelyOff()) // as the planner tells links apart
	}
	return slowest, costs(planned) && !m.isOpen(r, slowest, planned)
}

// message is how long one message takes over the slowest link of a plan's ring at worst, of those that are known; zero: none is.
func (m *Machine) message(plan *events.Plan) (slowest float64) {
	if r, has := m.ring(plan); has && plan.Kind == events.DataParallel {
		for link := range r.links(m.state.Links) {
			if isSure(link) {
				slowest = max(slowest, r.seconds(link.Measurement, link.SurelyOff()))
			}
		}
	}
	return slowest
}

// isOpen reports whether another link between an end of this one and who trains reads slow, and was probed once.
func (m *Machine) isOpen(r ring, slow events.Link, planned float64) bool {
	trains := map[string]bool{}
	for _, node := range r.nodes {
		trains[node] = true
	}
	for _, link := range m.state.Links {
		touches := link.From == slow.From || link.From == slow.To || link.To == slow.From || link.To == slow.To
		if touches && trains[link.From] && trains[link.To] && link.BandwidthBytesPerSecond > 0 && !link.Lost && !isSure(link) &&
			r.seconds(link.Measurement, 0) > planned {
			return true
		}
	}
	return false
}

// usualSure is the median of the links that are known. It is asked for where one is.
func (m *Machine) usualSure() events.Measurement {
	var sure []events.Link
	for _, link := range m.state.Links {
		if isSure(link) {
			sure = append(sure, link)
		}
	}
	return events.UsualOf(sure, nil).Link("", "")
}

// ring is of replicas that add up so many bytes, in its order.
type ring struct {
	nodes []string
	bytes int64
}

// ring returns that of a data-parallel plan, which has one.
func (m *Machine) ring(plan *events.Plan) (r ring, has bool) {
	for _, round := range plan.Sync.Rounds {
		for _, group := range round.Groups {
			r = ring{nodes: group.Nodes}
			gradients := m.state.Job.GradientBytes()
			if group.Layers.First < 0 || group.Layers.End > len(gradients) || group.Layers.Count() < 0 {
				return ring{}, false // the plan is of another job: restoring it shows that
			}
			for _, bytes := range gradients[group.Layers.First:group.Layers.End] {
				r.bytes += bytes
			}
		}
	}
	return r, len(r.nodes) > 1
}

// messages are how many a node sends one after the other (services/planner/policy, "reducing").
func (r ring) messages() float64 { return 2 * float64(len(r.nodes)-1) }

// seconds is how long a message takes over a link whose figures are off by a share: below zero at best, above it at worst.
func (r ring) seconds(link events.Measurement, off float64) float64 {
	return link.RoundTripSeconds/2*(1+off) + float64(r.bytes)/float64(len(r.nodes))/(link.BandwidthBytesPerSecond*(1-off))
}

// links yields what is known of the ring's links, both ways.
func (r ring) links(known map[string]events.Link) iter.Seq[events.Link] {
	return func(yield func(events.Link) bool) {
		for i, node := range r.nodes {
			next := r.nodes[(i+1)%len(r.nodes)]
			for _, key := range []string{linkKey(node, next), linkKey(next, node)} {
				if link, is := known[key]; is && !yield(link) {
					return
				}
			}
		}
	}
}

// shift is how often the links of a node have changed who trains lately. A link that comes and goes, or a node that lies, has that
// happen less and less often, as failures do.
type shift struct {
	failures
	Ever   int  `json:"ever"`   // no two alarms have one id
	PutOff bool `json:"putOff"` // there would be another
}

func (s shift) notBefore() time.Time { return s.Last.Add(seconds(merit.Wait(s.Count))) }

// mayShift reports whether a node's links may change who trains now, and counts it. Otherwise that is put off.
func (m *Machine) mayShift(node string) bool {
	maps.DeleteFunc(m.state.Shifts, func(other string, s shift) bool {
		return m.state.Members[other] == nil || merit.Forgotten(m.cause.Logged.Sub(s.Last).Seconds())
	})
	was := m.state.Shifts[node]
	if was.notBefore().After(m.cause.Logged) {
		was.PutOff = true
		m.state.Shifts[node] = was
		return false
	}
	ago := m.cause.Logged.Sub(was.Last).Seconds()
	m.state.Shifts[node] = shift{failures{Count: merit.After(was.Count, ago, ago, 1), Last: m.cause.Logged}, was.Ever + 1, false}
	return true
}

// letGo forgets what was put off: it is looked at again.
func (m *Machine) letGo() {
	for node, s := range m.state.Shifts {
		s.PutOff = false
		m.state.Shifts[node] = s
	}
}
