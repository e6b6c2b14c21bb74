package page

import (
	"context"
	"math"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/reknit/reknit/services/monitor/machine/view"
)

// figures are the view for Prometheus and OTLP: gauges of what is now, and what each change took once everybody works under its
// plan.
type figures struct {
	last    atomic.Pointer[view.Figures] // nil before the first
	cluster attribute.KeyValue
	seconds metric.Float64Histogram
	stall   metric.Float64Histogram
	moved   metric.Int64Counter
	stop    func()
}

// gauges are read from the last figures.
var gauges = []struct {
	name, unit, description string
	read                    func(*view.Figures) float64
}{
	{"reknit.cluster.generation", "", "Of the plan in force.", func(f *view.Figures) float64 { return float64(f.Generation) }},
	{"reknit.cluster.holds", "", "1 while no plan is possible; the page and reknit status say why.", func(f *view.Figures) float64 {
		if f.Holds {
			return 1
		}
		return 0
	}},
	{"reknit.cluster.log.older", "", "1 while the log is older than what nodes trained, until a person decides.", func(f *view.Figures) float64 {
		if f.Older {
			return 1
		}
		return 0
	}},
	{"reknit.layers.alone", "", "Layers that one death would lose, unless a snapshot has them.", func(f *view.Figures) float64 { return float64(f.Alone) }},
	{"reknit.training.step.held", "", "1 while a step is held: trainers ended in it one after the other.", func(f *view.Figures) float64 {
		if f.HoldsStep {
			return 1
		}
		return 0
	}},
	{"reknit.layers.bare", "", "Layers that no living node holds whole.", func(f *view.Figures) float64 { return float64(f.Bare) }},
	{"reknit.units.differing", "", "Units whose copies differ, and nobody can tell which is right.", func(f *view.Figures) float64 { return float64(f.Differ) }},
	{"reknit.links.lost", "", "Links between two nodes over which nothing passes.", func(f *view.Figures) float64 { return float64(f.LinksLost) }},
	{"reknit.training.step", "", "Completed steps, the most that a node told.", func(f *view.Figures) float64 { return float64(f.Step) }},
	{"reknit.training.loss", "", "Of the last step whose loss was told.", func(f *view.Figures) float64 { return f.Loss }},
	{"reknit.training.diverged", "", "1 while the loss is not finite.", func(f *view.Figures) float64 {
		if f.Diverged > 0 {
			return 1
		}
		return 0
	}},
	{"reknit.training.delayed", "", "Nodes for whom others wait in their step for longer than is usual.", func(f *view.Figures) float64 { return float64(len(f.Delayed)) }},
	{"reknit.training.samples", "{sample}/s", "Samples a second, of the last seconds.", func(f *view.Figures) float64 { return f.Rate }},
	{"reknit.training.step.duration", "s", "Of a step of the slowest node.", func(f *view.Figures) float64 { return f.StepSeconds }},
	{"reknit.training.step.error", "", "By how much of a measured step the predicted one was off: 0.1 is a tenth. None before both are known.", func(f *view.Figures) float64 {
		if f.Prediction == nil {
			return math.NaN()
		}
		return f.Prediction.Error
	}},
}

// newFigures has them read until stop is called.
func newFigures(cluster string) (*figures, error) {
	f := &figures{cluster: attribute.String("cluster", cluster)}
	meter := otel.Meter("reknit")
	bounds := metric.WithExplicitBucketBoundaries(.05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 1800)
	var err error
	if f.seconds, err = meter.Float64Histogram("reknit.change.duration", metric.WithUnit("s"), bounds,
		metric.WithDescription("From what brought a change about until everybody works under its plan, by kind.")); err != nil {
		return nil, err
	}
	if f.stall, err = meter.Float64Histogram("reknit.change.stall", metric.WithUnit("s"), bounds,
		metric.WithDescription("The longest that a trainer stood still for a change, by kind.")); err != nil {
		return nil, err
	}
	if f.moved, err = meter.Int64Counter("reknit.change.moved", metric.WithUnit("By"),
		metric.WithDescription("Bytes of state that changes moved, by kind.")); err != nil {
		return nil, err
	}
	nodes, err := meter.Int64ObservableGauge("reknit.cluster.nodes", metric.WithDescription("Nodes by state."))
	if err != nil {
		return nil, err
	}
	age, err := meter.Float64ObservableGauge("reknit.snapshot.age", metric.WithUnit("s"),
		metric.WithDescription("Since a snapshot was complete last, by tier."))
	if err != nil {
		return nil, err
	}
	late, err := meter.Int64ObservableGauge("reknit.snapshot.late",
		metric.WithDescription("1 where no snapshot is complete for four times as many steps as lay between the last two, by tier."))
	if err != nil {
		return nil, err
	}
	observables := []metric.Observable{nodes, age, late}
	read := make([]metric.Float64ObservableGauge, len(gauges))
	for i, g := range gauges {
		if read[i], err = meter.Float64ObservableGauge(g.name, metric.WithUnit(g.unit), metric.WithDescription(g.description)); err != nil {
			return nil, err
		}
		observables = append(observables, read[i])
	}
	registered, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		last := f.last.Load()
		if last == nil {
			return nil
		}
		for i, g := range gauges {
			if value := g.read(last); !math.IsNaN(value) {
				o.ObserveFloat64(read[i], value, metric.WithAttributes(f.cluster))
			}
		}
		for state, count := range last.States {
			o.ObserveInt64(nodes, int64(count), metric.WithAttributes(f.cluster, attribute.String("state", state)))
		}
		for tier, seconds := range last.Age {
			o.ObserveFloat64(age, seconds, metric.WithAttributes(f.cluster, attribute.String("tier", tier)))
		}
		for tier, isLate := range last.Late {
			value := int64(0)
			if isLate {
				value = 1
			}
			o.ObserveInt64(late, value, metric.WithAttributes(f.cluster, attribute.String("tier", tier)))
		}
		return nil
	}, observables...)
	f.stop = func() { _ = registered.Unregister() } // it cannot fail
	return f, err
}

// put has the next reader see these figures.
func (f *figures) put(now view.Figures) {
	f.last.Store(&now)
	for _, change := range now.Done {
		about := metric.WithAttributes(f.cluster, attribute.String("kind", change.Kind))
		f.seconds.Record(context.Background(), change.Seconds, about)
		f.stall.Record(context.Background(), change.StallSeconds, about)
		f.moved.Add(context.Background(), change.BytesMoved, about)
	}
}
