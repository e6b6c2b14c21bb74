package plan

import (
	"context"
	"math"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/profile"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/shared/bus"
)

// measured is what nodes tell in the log of how they train.
type measured struct {
	since    uint64                    // sequence of the request for a plan
	declared events.Job                // as nodes came to train it
	costs    profile.Layers            // of all that the log has
	before   bool                      // some told of layers before the request, which says what they measured
	news     map[string]events.Profile // by node, the last since the request
	paces    profile.Paces             // of the plan in force
}

// takeMeasured reads what was measured after a position of the log, at which a plan was requested: nothing else changes what a planner must
// know without a request of its own. The cost of layers is the median of the last nodes' words, many of them older. So are the words on the
// pace of a plan whose successor was asked for and is not committed: the log keeps 256 of each node.
func (q *Question) takeMeasured(ctx context.Context, b *bus.Bus, after uint64) error {
	if err := connect.Read(ctx, b, []events.Kind{events.LinkMeasured}, connect.Span{After: after}, q.takeLink); err != nil {
		return err
	}
	declared, err := declaredJob(ctx, b, &q.Request)
	if err != nil {
		return err
	}
	m := measured{since: after, declared: declared, costs: profile.Layers{}, news: map[string]events.Profile{}, paces: profile.Paces{}}
	take := func(event events.Event) { m.take(&q.Request, event) }
	if err := connect.Read(ctx, b, []events.Kind{events.NodeProfiled, events.PlanMeasured}, connect.Span{}, take); err != nil {
		return err
	}
	m.correct(&q.Request)
	q.paces = m.paces
	q.pace()
	return nil
}

// declaredJob is the job of a request without what was measured of it. The last join tells it, if that is of a node which was taken in:
// a job that differs from the cluster's is refused. Otherwise the request's counts.
func declaredJob(ctx context.Context, b *bus.Bus, request *events.PlanRequest) (events.Job, error) {
	last, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), events.JoinRequested, "*"))
	if err != nil || !found {
		return request.Job, err
	}
	join, err := events.Open[events.Join](last)
	isOfJoin := func(node events.Device) bool { return node.Node == join.Node && node.Incarnation == join.Incarnation }
	if err != nil || !slices.ContainsFunc(request.Nodes, isOfJoin) || len(join.Job.Layers) != len(request.Job.Layers) {
		return request.Job, nil
	}
	return join.Job, nil
}

// takeLink notes how good a link is. An event that does not decode is the log's to refuse, not ours.
func (q *Question) takeLink(event events.Event) {
	measured, err := events.Open[events.Measurement](event)
	if err != nil {
		return
	}
	at := slices.IndexFunc(q.Request.Links, func(link events.Link) bool {
		return link.From == measured.From && link.To == measured.To
	})
	if at < 0 {
		at = len(q.Request.Links)
		q.Request.Links = append(q.Request.Links, events.Link{})
	}
	q.Request.Links[at].Measurement = measured
}

// take notes what a node tells. The time of a step counts from those nodes that tell it of the plan in force, as for the negotiator.
func (m *measured) take(request *events.PlanRequest, event events.Event) {
	if pace, err := events.Open[events.Pace](event); err == nil && event.Kind == events.PlanMeasured {
		if plan := request.Current; plan != nil && pace.Generation == plan.Generation && plan.Paced(pace.Node) {
			m.paces.Take(pace.Node, pace.StepSeconds, pace.ComputeSeconds)
		}
	}
	if told, err := events.Open[events.Profile](event); err == nil && event.Kind == events.NodeProfiled {
		m.profiled(request, event.Sequence, told)
	}
}

// profiled notes what a node tells of itself. A node that is gone is not asked again (profile.Layers.Leave).
func (m *measured) profiled(request *events.PlanRequest, sequence uint64, told events.Profile) {
	at := slices.IndexFunc(request.Nodes, func(node events.Device) bool { return node.Node == told.Node })
	if n := len(told.Layers); n > 0 && told.FirstLayer+n <= len(request.Job.Layers) {
		room := int64(math.MaxInt64)
		if at >= 0 {
			room = request.Nodes[at].MemoryBytes + request.Nodes[at].OtherBytes
		}
		m.costs.Take(told.Node, told.FirstLayer, costs(told.Layers, room))
		if m.before = m.before || sequence <= m.since; at < 0 {
			m.costs.Leave(told.Node)
		}
	}
	if sequence <= m.since || at < 0 {
		return
	}
	if told.PeakBytes == 0 { // of memory it tells nothing new
		told.PeakBytes, told.OtherBytes = m.news[told.Node].PeakBytes, m.news[told.Node].OtherBytes
	}
	m.news[told.Node] = told
}

// costs are what a node with so much room tells of layers. Activations that it has no room for were not measured.
func costs(layers []events.LayerCost, room int64) []profile.Cost {
	list := make([]profile.Cost, len(layers))
	for i, layer := range layers {
		list[i] = profile.Cost(layer)
		room -= layer.ActivationBytes
	}
	for i := range list {
		if room < 0 {
			list[i].ActivationBytes = 0
		}
	}
	return list
}

// correct puts what was measured in the place of what a request says. O(nodes + layers log layers).
func (m *measured) correct(request *events.PlanRequest) {
	asked := request.Job
	request.Job = m.job(asked)
	speeds := m.speeds(request, asked)
	for i := range request.Nodes {
		node := &request.Nodes[i]
		node.SpeedFactor = speeds[i]
		if news := m.news[node.Node]; news.PeakBytes > 0 {
			node.MemoryBytes, node.OtherBytes = max(1, node.MemoryBytes+node.OtherBytes-news.OtherBytes), news.OtherBytes
		}
	}
}

// pace says what steps of the plan in force take, where that was told since its request, with the nodes that will be there. O(nodes).
func (q *Question) pace() {
	if len(q.paces) > 0 {
		q.Request.CurrentStepSeconds, q.Request.CurrentLeastSeconds = q.paces.StepSeconds()
		q.Request.CurrentComputeRatio = q.Request.ComputeRatio(q.paces.Passes())
	}
}

// job is the declared job with what was measured of its layers. The request's own figures stay if nobody told of any, and those of a
// layer that it knows more of than the log does, whose events go with time.
func (m *measured) job(asked events.Job) events.Job {
	if len(m.costs) == 0 {
		return asked
	}
	declared := make([]profile.Cost, len(m.declared.Layers))
	for i, layer := range m.declared.Layers {
		declared[i] = profile.Cost{ForwardSeconds: layer.ForwardSeconds, BackwardSeconds: layer.BackwardSeconds,
			ActivationBytes: layer.ActivationBytes}
	}
	before := asked.Layers
	asked.Layers = slices.Clone(before)
	for i, cost := range m.costs.All(declared) {
		if _, told := m.costs.Of(i); !told && before[i] != m.declared.Layers[i] {
			continue
		}
		layer := &asked.Layers[i]
		layer.ForwardSeconds, layer.BackwardSeconds, layer.ActivationBytes = cost.ForwardSeconds, cost.BackwardSeconds, cost.ActivationBytes
	}
	return asked
}

// usualSpeeds is by how much a speed may differ from the median and counts as that, as for the negotiator.
const usualSpeeds = 1.5

// speeds are the nodes' speeds beside what a request's job says, which was asked for with other words on its layers.
func (m *measured) speeds(request *events.PlanRequest, asked events.Job) []float64 {
	speeds := make([]float64, len(request.Nodes))
	for i, node := range request.Nodes {
		speeds[i] = m.speed(request, asked, node)
	}
	if len(m.costs) == 0 {
		return speeds
	}
	return usual(speeds)
}

// speed is that of a node; zero: not known. If nobody told of layers before the request, its speeds say nothing beside what nodes told
// since.
func (m *measured) speed(request *events.PlanRequest, asked events.Job, node events.Device) float64 {
	stage, generation := events.Range{}, uint64(0)
	if request.Current != nil {
		stage, _ = request.Current.Holds(node.Node)
		generation = request.Current.Generation
	}
	news, isNews := m.news[node.Node]
	switch {
	case len(m.costs) == 0 && isNews:
		return news.Speed(&request.Job, stage)
	case len(m.costs) == 0:
		return node.SpeedFactor
	case isNews && stage.Count() > 0 && news.Generation == generation && news.MicroBatchSeconds == 0:
		return rescaled(news.SpeedFactor, stage, request.Job, m.declared)
	case isNews && stage.Count() > 0 && news.Generation == generation:
		return news.Speed(&request.Job, stage)
	case m.before:
		return rescaled(node.SpeedFactor, stage, request.Job, asked)
	}
	return 0
}

// rescaled is the speed of a node that takes as long as before for layers of which a job says something else now.
func rescaled(speed float64, stage events.Range, now, before events.Job) float64 {
	if stage.Count() == 0 {
		stage = events.Range{End: len(now.Layers)}
	}
	if said := before.MicroBatchSeconds(stage); said > 0 {
		return speed * now.MicroBatchSeconds(stage) / said
	}
	return speed
}

// usual gives the median of all known speeds to those nodes of which none is known, or one near to it: what is measured scatters, and
// to move layers for less is not worth it.
func usual(speeds []float64) []float64 {
	known := slices.DeleteFunc(slices.Clone(speeds), func(speed float64) bool { return speed == 0 })
	median := profile.Median(known)
	for i, speed := range speeds {
		switch {
		case median == 0:
			speeds[i] = 1
		case speed == 0 || speed < median*usualSpeeds && speed > median/usualSpeeds:
			speeds[i] = median
		}
	}
	return speeds
}
