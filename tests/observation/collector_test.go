package observation

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// span is one that came.
type span struct {
	name, who  string // who handles or says the event
	id, parent string // empty parent: a root
	begin, end time.Time
}

// collected is what came over OTLP, by trace.
type collected struct {
	mutex  sync.Mutex
	traces map[string][]span
}

// collect serves OTLP over HTTP until the test ends, and returns where.
func collect(t *testing.T) (*collected, string) {
	c := &collected{traces: map[string][]span{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, request *http.Request) {
		var spans collector.ExportTraceServiceRequest
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = proto.Unmarshal(body, &spans)
		}
		if err != nil {
			t.Errorf("spans are not understood: %v", err)
		}
		c.note(&spans)
	})
	mux.HandleFunc("POST /v1/metrics", func(http.ResponseWriter, *http.Request) {}) // those are Prometheus' here
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return c, server.URL
}

func (c *collected) note(spans *collector.ExportTraceServiceRequest) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, resource := range spans.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, came := range scope.GetSpans() {
				attributes := map[string]string{}
				for _, attribute := range came.GetAttributes() {
					attributes[attribute.GetKey()] = attribute.GetValue().GetStringValue()
				}
				trace := string(came.GetTraceId())
				c.traces[trace] = append(c.traces[trace], span{
					name: came.GetName(), who: cmp.Or(attributes["messaging.consumer.group.name"], attributes["event.source"]),
					id: string(came.GetSpanId()), parent: string(came.GetParentSpanId()),
					begin: time.Unix(0, int64(came.GetStartTimeUnixNano())), end: time.Unix(0, int64(came.GetEndTimeUnixNano())),
				})
			}
		}
	}
}

// with returns the spans of the trace that has a span of this name and speaker, in the order in which they began.
func (c *collected) with(name, who string) []span {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, spans := range c.traces {
		if slices.ContainsFunc(spans, func(s span) bool { return s.name == name && s.who == who }) {
			return slices.SortedFunc(slices.Values(spans), func(a, b span) int { return a.begin.Compare(b.begin) })
		}
	}
	return nil
}
