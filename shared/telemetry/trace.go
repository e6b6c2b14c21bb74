package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reknit/reknit/events"
)

// One trace holds one change: from the request of a trainer through all services to the last receipt. Ids are functions
// of the events, so that a redelivered one says the same words. The trace is that of an event's traceparent, or for a first
// cause the first 16 bytes of sha256(event id). The span is the first 8 bytes of sha256(who|event id). Names and
// attributes follow OpenTelemetry's conventions for messaging.

// Process starts the span of a service that handles an event, and returns the traceparent that what it says carries.
func Process(ctx context.Context, service string, event events.Event) (_ context.Context, traceparent string, end func()) {
	ctx, own, span := begin(ctx, service, event, "process", trace.WithSpanKind(trace.SpanKindConsumer))
	span.SetAttributes(semconv.MessagingConsumerGroupName(service))
	if !span.IsRecording() { // no exporter: logs and outputs carry the trace all the same
		ctx = trace.ContextWithSpanContext(ctx, own)
	}
	return ctx, format(own), func() { span.End() }
}

// Send starts the span of who says an event that no service brought about by handling another, and gives the event its
// traceparent, where spans are exported. A node's span begins when it heard what it answers: since then it has worked on the
// answer, or waited for its next step.
func Send(ctx context.Context, event *events.Event, heard time.Time) (end func(error)) {
	_, own, span := begin(ctx, event.Source, *event, "send", trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(heard))
	if span.IsRecording() {
		event.Traceparent = format(own)
	}
	return func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

func begin(
	ctx context.Context, who string, event events.Event, operation string, options ...trace.SpanStartOption,
) (context.Context, trace.SpanContext, trace.Span) {
	parent, hasParent := parse(event.Traceparent)
	traceID := parent.TraceID()
	if !hasParent {
		sum := sha256.Sum256([]byte(event.ID))
		traceID = trace.TraceID(sum[:16])
	}
	sum := sha256.Sum256([]byte(who + "|" + event.ID))
	own := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: trace.SpanID(sum[:8]), TraceFlags: trace.FlagsSampled,
	})
	if hasParent {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, span := otel.Tracer("reknit").Start(context.WithValue(ctx, derived{}, own), operation+" "+string(event.Kind), options...)
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingSystemKey.String("nats"), semconv.MessagingOperationName(operation),
			semconv.MessagingOperationTypeKey.String(operation), semconv.MessagingDestinationName(event.SubjectName()),
			semconv.MessagingMessageID(event.ID), attribute.String("event.source", event.Source))
	}
	return ctx, own, span
}

func format(c trace.SpanContext) string {
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-01"
}

// parse reads a W3C traceparent of version 00.
func parse(traceparent string) (trace.SpanContext, bool) {
	parts := strings.Split(traceparent, "-")
	if len(parts) != 4 || parts[0] != "00" {
		return trace.SpanContext{}, false
	}
	traceID, traceErr := trace.TraceIDFromHex(parts[1])
	spanID, spanErr := trace.SpanIDFromHex(parts[2])
	flags, flagsErr := hex.DecodeString(parts[3])
	if traceErr != nil || spanErr != nil || flagsErr != nil || len(flags) != 1 {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]), Remote: true,
	}), true
}

type derived struct{} // context key of the span context that Process derived

// derivedIDs hands the ids that Process derived to the SDK; other spans get random ones.
type derivedIDs struct{}

func (derivedIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if own, ok := ctx.Value(derived{}).(trace.SpanContext); ok {
		return own.TraceID(), own.SpanID()
	}
	var traceID trace.TraceID
	rand.Read(traceID[:])
	return traceID, derivedIDs{}.NewSpanID(ctx, traceID)
}

func (derivedIDs) NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID {
	if own, ok := ctx.Value(derived{}).(trace.SpanContext); ok && own.TraceID() == traceID {
		return own.SpanID()
	}
	var spanID trace.SpanID
	rand.Read(spanID[:])
	return spanID
}
