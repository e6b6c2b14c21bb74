package telemetry

import (
	"fmt"
	"strings"
	"testing"
)

func FuzzTraceparent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-01")
	f.Fuzz(func(t *testing.T, traceparent string) {
		parent, ok := parse(traceparent)
		if !ok {
			return
		}
		back := fmt.Sprintf("00-%s-%s-%02x", parent.TraceID(), parent.SpanID(), byte(parent.TraceFlags()))
		if !parent.IsValid() || !strings.EqualFold(back, traceparent) {
			t.Errorf("%q was read as %s", traceparent, back)
		}
	})
}
