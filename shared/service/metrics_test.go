package service

import (
	"testing"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// An alert saw no increase where the first value of a series was 1: the first refused message, or the third failure of a node.
func TestWhatAlertsAreOfIsCountedFromZero(t *testing.T) {
	reader, before := sdk.NewManualReader(), otel.GetMeterProvider()
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	newMetrics("negotiator", "c")
	var told metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &told); err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{bus.Stale: true, bus.Repeated: true, string(events.JoinDelayed): true, string(events.Aborted): true}
	for _, scope := range told.ScopeMetrics {
		for _, series := range scope.Metrics {
			sum, _ := series.Data.(metricdata.Sum[int64])
			for _, point := range sum.DataPoints {
				if cluster, _ := point.Attributes.Value("cluster"); point.Value != 0 || cluster.AsString() != "c" {
					t.Errorf("%s of cluster %q begins at %d", series.Name, cluster.AsString(), point.Value)
				}
				for _, label := range point.Attributes.ToSlice() {
					delete(missing, label.Value.AsString())
				}
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("nothing is told of %v", missing)
	}
}
