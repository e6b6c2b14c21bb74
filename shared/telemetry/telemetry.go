// Package telemetry sets up logs, traces and metrics of a process: structured logs joined to the trace, spans and
// metrics over OTLP/HTTP where OTEL_EXPORTER_OTLP_ENDPOINT is set, metrics for Prometheus to fetch, too.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Level is the least level that is logged.
var Level = new(slog.LevelVar)

// Setup makes the process's logger, tracer and meter, once a process. Shutdown sends the spans and figures that wait.
func Setup(ctx context.Context, name string) (shutdown func(context.Context) error, err error) {
	slog.SetDefault(slog.New(logHandler{newLogHandler(os.Stderr)}).With("service", name))
	fetched, err := prometheus.New()
	if err != nil {
		return nil, fmt.Errorf("telemetry: metrics: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", name)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("telemetry: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	measures := []metric.Option{metric.WithReader(fetched), metric.WithResource(about)}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		meters := metric.NewMeterProvider(measures...)
		otel.SetMeterProvider(meters)
		return meters.Shutdown, nil
	}
	pushed, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("telemetry: metrics: %w", err)
	}
	meters := metric.NewMeterProvider(append(measures, metric.WithReader(metric.NewPeriodicReader(pushed)))...)
	otel.SetMeterProvider(meters)
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("telemetry: traces: %w", err)
	}
	tracers := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(about), sdktrace.WithIDGenerator(derivedIDs{}))
	otel.SetTracerProvider(tracers)
	return func(ctx context.Context) error { return errors.Join(tracers.Shutdown(ctx), meters.Shutdown(ctx)) }, nil
}

// newLogHandler writes JSON lines, or text where a person reads.
func newLogHandler(file *os.File) slog.Handler {
	options := &slog.HandlerOptions{Level: Level}
	if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return slog.NewTextHandler(file, options)
	}
	return slog.NewJSONHandler(file, options)
}

// logHandler adds the trace to each line logged with a context.
type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

func (h logHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attributes)}
}

func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }
