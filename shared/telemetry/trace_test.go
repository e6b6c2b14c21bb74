package telemetry

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/reknit/reknit/events"
)

// chain handles a first cause in one service and what it says in another, and returns the two traceparents.
func chain() (first, second string) {
	cause := events.Event{ID: "cause", Kind: events.NodeLost}
	_, first, endFirst := Process(context.Background(), "negotiator", cause)
	_, second, endSecond := Process(context.Background(), "planner",
		events.Event{ID: "answer", Kind: events.PlanRequested, Traceparent: first})
	endSecond()
	endFirst()
	return first, second
}

func TestATraceparentIsAFunctionOfTheCauseWithOrWithoutAnExporter(t *testing.T) {
	first, second := chain()
	spans := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(derivedIDs{}),
		sdktrace.WithSpanProcessor(spans)))
	if again, answer := chain(); again != first || answer != second {
		t.Errorf("%s and %s, with an exporter %s and %s", first, second, again, answer)
	}
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("expected two spans, got %d", len(ended))
	}
	answer, cause := ended[0], ended[1]
	if answer.Parent().SpanID() != cause.SpanContext().SpanID() ||
		answer.SpanContext().TraceID() != cause.SpanContext().TraceID() {
		t.Errorf("the answer's span is not the child of its cause's: %+v", answer.Parent())
	}
	if !strings.Contains(second, answer.SpanContext().SpanID().String()) || cause.Name() != "process node.lost" {
		t.Errorf("%s, span %s", second, cause.Name())
	}
}

func TestAMalformedTraceparentBeginsATraceOfItsOwn(t *testing.T) {
	_, alone, _ := Process(context.Background(), "planner", events.Event{ID: "x"})
	for _, bad := range []string{"nonsense", "00-0-0-01", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"} {
		if _, got, _ := Process(context.Background(), "planner", events.Event{ID: "x", Traceparent: bad}); got != alone {
			t.Errorf("%q: got %s, expected %s", bad, got, alone)
		}
	}
}

func TestALogLineCarriesItsTrace(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(logHandler{slog.NewJSONHandler(&out, nil)}).With("service", "planner").WithGroup("more")
	ctx, traceparent, end := Process(context.Background(), "planner", events.Event{ID: "x"})
	defer end()
	log.InfoContext(ctx, "heard")
	if traceID := strings.Split(traceparent, "-")[1]; !strings.Contains(out.String(), traceID) {
		t.Errorf("%s is not in %s", traceID, out.String())
	}
}
