package losses

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/events"
)

// World is what the next plan request will say, as far as it can be known: the plan in force, the request that it came
// of, and what changed since. An error has one effect only: an answer computed ahead fits no request.
type World struct {
	plan    *events.Plan
	request *events.PlanRequest
	asked   *events.PlanRequest // of the negotiation under way
	last    uint64              // the sequence of the newest request
	aborted string              // the negotiation that ended last without a plan
}

// Hears are the facts, beside requests and committed plans, that change what the next request says. All others lead to a
// request first.
var Hears = []events.Kind{events.Aborted, events.LinkMeasured, events.NodeProfiled}

// Hear takes in a fact of Hears, a request or a committed plan.
func (w *World) Hear(event events.Event) {
	switch event.Kind {
	case events.PlanRequested:
		take(event, func(request events.PlanRequest) { w.hearRequest(event.Sequence, request) })
	case events.PlanCommitted:
		take(event, func(plan events.Plan) { w.plan = &plan })
	case events.Aborted:
		take(event, func(abortion events.Abort) {
			if w.aborted = abortion.Negotiation; w.asked != nil && w.asked.Negotiation == w.aborted {
				w.asked = nil
			}
		})
	case events.LinkMeasured:
		take(event, w.measured)
	case events.NodeProfiled:
		take(event, w.profiled)
	}
	if w.asked != nil && w.plan != nil && w.asked.Generation == w.plan.Generation {
		w.request, w.asked = w.asked, nil
	}
}

// hearRequest takes a request that is news. It may come late: behind newer ones, or behind the end of its negotiation.
func (w *World) hearRequest(sequence uint64, request events.PlanRequest) {
	if sequence < w.last || request.Negotiation == w.aborted {
		return
	}
	// Facts change both lists, and who answers the request reads them meanwhile.
	request.Nodes, request.Links = slices.Clone(request.Nodes), slices.Clone(request.Links)
	w.last, w.asked = sequence, &request
}

// take opens an event, which the bus let through, and so is what it says.
func take[T any, P interface {
	*T
	events.Payload
}](event events.Event, hear func(T)) {
	if payload, err := events.Open[T, P](event); err == nil {
		hear(payload)
	}
}

// Standing is the plan in force, if it is that of the last request and nothing is negotiated that we know of; otherwise
// nil.
func (w *World) Standing() *events.Plan {
	if w.asked != nil || w.request == nil || w.plan == nil || w.request.Generation != w.plan.Generation {
		return nil
	}
	return w.plan
}

// requests are those that the next one may be made of.
func (w *World) requests() []*events.PlanRequest {
	return slices.DeleteFunc([]*events.PlanRequest{w.request, w.asked},
		func(request *events.PlanRequest) bool { return request == nil })
}

// measured puts a link where the negotiator would list it: by its ends.
func (w *World) measured(measured events.Measurement) {
	for _, request := range w.requests() {
		from, to := device(request, measured.From), device(request, measured.To)
		if from < 0 || to < 0 {
			continue
		}
		site := map[string]string{measured.From: request.Nodes[from].Site, measured.To: request.Nodes[to].Site}
		isUsual := request.Usual != nil && request.Usual.StandsFor(measured, nil) && request.Usual.StandsFor(measured, site)
		at, known := slices.BinarySearchFunc(request.Links, measured,
			func(link events.Link, measured events.Measurement) int {
				return cmp.Or(cmp.Compare(link.From, measured.From), cmp.Compare(link.To, measured.To))
			})
		switch {
		case known && !request.Links[at].Lost && !request.Links[at].Disconnected && isUsual:
			request.Links = slices.Delete(request.Links, at, at+1)
		case known:
			request.Links[at].Measurement = measured
		case !isUsual:
			request.Links = slices.Insert(request.Links, at, events.Link{Measurement: measured})
		}
	}
}

// profiled notes a node's speed. The negotiator says how long layers take, from the words of several nodes.
func (w *World) profiled(profile events.Profile) {
	stage := events.Range{}
	if w.plan != nil {
		stage, _ = w.plan.Holds(profile.Node)
	}
	for _, request := range w.requests() {
		if at := device(request, profile.Node); at >= 0 {
			request.Nodes[at].SpeedFactor = profile.Speed(&request.Job, stage)
		}
	}
}

func device(request *events.PlanRequest, node string) int {
	return slices.IndexFunc(request.Nodes, func(device events.Device) bool { return device.Node == node })
}

// after is the request that follows the loss of some nodes.
func (w *World) after(lost ...string) events.PlanRequest {
	request := *w.request
	request.Generation, request.Current = w.plan.Generation+1, w.plan
	request.Nodes = slices.DeleteFunc(slices.Clone(request.Nodes),
		func(device events.Device) bool { return slices.Contains(lost, device.Node) })
	request.Links = slices.DeleteFunc(slices.Clone(request.Links), func(link events.Link) bool {
		return slices.Contains(lost, link.From) || slices.Contains(lost, link.To)
	})
	return request
}
