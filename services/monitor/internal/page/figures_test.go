package page

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/reknit/reknit/services/monitor/machine/view"
)

// told returns what Prometheus would read of some figures, by name and the tier that it is of.
func told(t *testing.T, now view.Figures) map[string]float64 {
	t.Helper()
	reader := sdk.NewManualReader()
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	f, err := newFigures("c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.stop)
	f.put(now)
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			switch data := metric.Data.(type) {
			case metricdata.Gauge[float64]:
				note(values, metric.Name, data.DataPoints)
			case metricdata.Gauge[int64]:
				note(values, metric.Name, data.DataPoints)
			}
		}
	}
	return values
}

func note[N int64 | float64](values map[string]float64, name string, points []metricdata.DataPoint[N]) {
	for _, point := range points {
		tier, _ := point.Attributes.Value("tier")
		values[strings.TrimSpace(name+" "+tier.AsString())] = float64(point.Value)
	}
}

// An alert goes by these: what the page shows in red, nobody hears who does not look at it.
func TestWhatNobodyMayMissIsAFigure(t *testing.T) {
	ill := told(t, view.Figures{
		Status: view.Status{Diverged: 40, Step: 50, Loss: 2}, Holds: true, HoldsStep: true, Older: true,
		Late: map[string]bool{"disk": true, "remote": false}, Age: map[string]float64{"disk": 7},
	})
	want := map[string]float64{
		"reknit.training.diverged": 1, "reknit.cluster.holds": 1, "reknit.training.step.held": 1, "reknit.cluster.log.older": 1,
		"reknit.training.step": 50, "reknit.training.loss": 2,
		"reknit.snapshot.late disk": 1, "reknit.snapshot.late remote": 0, "reknit.snapshot.age disk": 7,
	}
	for name, value := range want {
		if got, is := ill[name]; !is || got != value {
			t.Errorf("%s is %v, %v: expected %v", name, got, is, value)
		}
	}
	well := told(t, view.Figures{})
	for name := range want {
		if value := well[name]; value != 0 {
			t.Errorf("where all is well %s is %v", name, value)
		}
	}
}
