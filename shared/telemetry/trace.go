package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/reknit/reknit/events"
)

// Process starts the span of a service that handles an event, and returns the traceparent that what it says carries.
// One trace holds one change: ids are functions of the event, so that a redelivered one says the same words.
//
// The trace is that of the event's traceparent, or for a first cause the first 16 bytes of sha256(event id). The span
// is the first 8 bytes of sha256(service|event id).
func Process(ctx context.Context, service string, event events.Event) (_ context.Context, traceparent string, end func()) {
	parent, hasParent := parse(event.Traceparent)
	traceID := parent.TraceID()
	if !hasParent {
		sum := sha256.Sum256([]byte(event.ID))
		traceID = trace.TraceID(sum[:16])
	}
	sum := sha256.Sum256([]byte(service + "|" + event.ID))
	own := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: trace.SpanID(sum[:8]), TraceFlags: trace.FlagsSampled,
	})
	if hasParent {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, span := otel.Tracer("reknit").Start(context.WithValue(ctx, derived{}, own), "process "+string(event.Kind),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("event.id", event.ID), attribute.String("event.subject", event.Subject)))
	if !span.IsRecording() { // no exporter: logs and outputs carry the trace all the same
		ctx = trace.ContextWithSpanContext(ctx, own)
	}
	return ctx, fmt.Sprintf("00-%s-%s-01", own.TraceID(), own.SpanID()), func() { span.End() }
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
