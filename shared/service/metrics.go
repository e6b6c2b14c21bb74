package service

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

type metrics struct {
	heard, said, senseless, unsaid, duplicates, refused counter
	seconds                                             metric.Float64Histogram
}

// counter counts for one service of a cluster by one label.
type counter struct {
	metric.Int64Counter
	service, cluster string
}

func (c counter) add(ctx context.Context, more int64, label, value string) {
	c.Add(ctx, more, metric.WithAttributes(
		attribute.String("service", c.service), attribute.String("cluster", c.cluster), attribute.String(label, value)))
}

func newMetrics(service, cluster string) metrics {
	meter := otel.Meter("reknit")
	count := func(name, description string) counter {
		c, _ := meter.Int64Counter(name, metric.WithDescription(description)) // these names are good ones
		return counter{c, service, cluster}
	}
	seconds, _ := meter.Float64Histogram("reknit.message.handling", metric.WithUnit("s"),
		metric.WithDescription("From taking a message to all its outputs published."),
		metric.WithExplicitBucketBoundaries(.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10))
	m := metrics{
		heard:      count("reknit.events.heard", "Events handled, by kind."),
		said:       count("reknit.events.said", "Events published, by kind."),
		senseless:  count("reknit.events.senseless", "Events the machine could make nothing of, by kind."),
		unsaid:     count("reknit.events.unsaid", "Events the machine may not say, by kind: a fault of ours."),
		duplicates: count("reknit.events.duplicate", "Events said before though their cause is new, by kind: a fault of ours."),
		refused:    count("reknit.messages.refused", "Messages that are no event of the catalogue, by reason."),
		seconds:    seconds,
	}
	for _, row := range events.Catalogue { // Prometheus sees no increase in a series whose first value is 1
		if row.Authorised("/" + service) {
			m.said.add(context.Background(), 0, "kind", string(row.Kind))
		}
	}
	for _, reason := range bus.Reasons {
		m.refused.add(context.Background(), 0, "reason", reason)
	}
	return m
}

// watchHealth has Prometheus see what /healthz and /readyz go by, until stop is called. A copy that stands by acts not, and
// is at the end of the log.
func watchHealth(service string, h *health) (stop func()) {
	meter := otel.Meter("reknit")
	about := metric.WithAttributes(attribute.String("service", service))
	gauge := func(name, description string) metric.Int64ObservableGauge {
		g, _ := meter.Int64ObservableGauge(name, metric.WithDescription(description)) // likewise
		return g
	}
	acting := gauge("reknit.service.acting", "1 where this copy has the lease and acts, 0 where it stands by.")
	standing := gauge("reknit.service.standing.still", "1 where the copy does not get on; /readyz says why.")
	stuck := gauge("reknit.service.stuck", "1 where only a restart helps; /healthz says why.")
	behind := gauge("reknit.service.behind", "Messages of the log that the copy is not done with.")
	filled, _ := meter.Float64ObservableGauge("reknit.store.filled",
		metric.WithDescription("Share of its bound that the fullest of what refuses more holds, by name."))
	registered, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(acting, one[h.consumer.Load() != nil], about)
		o.ObserveInt64(standing, one[h.standsStill() != nil], about)
		o.ObserveInt64(stuck, one[h.stuck() != nil], about)
		if lag := h.lag.Load(); lag != nil {
			o.ObserveInt64(behind, int64(lag.Messages), about)
		}
		if fullest := h.filled.Load(); fullest != nil {
			o.ObserveFloat64(filled, fullest.Share, metric.WithAttributes(
				attribute.String("service", service), attribute.String("store", fullest.Store)))
		}
		return nil
	}, acting, standing, stuck, behind, filled)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() { _ = registered.Unregister() } // it cannot fail
}

var one = map[bool]int64{true: 1}
