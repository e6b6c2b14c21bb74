package connect

import (
	"bytes"
	"regexp"

	"github.com/reknit/reknit/events"
)

// breaks are the escapes of JSON that would begin a line or speak to a terminal, behind an even number of backslashes.
var breaks = regexp.MustCompile(`\\(?:[nrtbf]|u00[01][0-9a-fA-F])|\\.`)

// InLines returns an event whose texts have no line breaks and other controls: spaces stand in their place. Texts are anybody's
// words, and one with a line break would forge lines of what a command tells. A committed plan stays as it is, for its digest.
func InLines(event events.Event) events.Event {
	if bytes.IndexByte(event.Data, '\\') < 0 || event.Kind == events.PlanCommitted {
		return event
	}
	data := breaks.ReplaceAllFunc(event.Data, func(escape []byte) []byte {
		if bytes.IndexByte([]byte("nrtbf"), escape[1]) >= 0 || len(escape) > 2 {
			return []byte(" ")
		}
		return escape // of a quote, a backslash, or the beginning of another letter's
	})
	return events.Event{ // without what was read of the data before
		ID: event.ID, Kind: event.Kind, Source: event.Source, Subject: event.Subject, Cluster: event.Cluster, Cause: event.Cause,
		Traceparent: event.Traceparent, Time: event.Time, Data: data, Logged: event.Logged, Sequence: event.Sequence,
	}
}
