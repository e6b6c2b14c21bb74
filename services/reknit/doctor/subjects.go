package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
)

// subjects looks for what was said where nobody listens. The log takes and acknowledges whatever begins as its events do,
// and services hear the kinds that they know.
func (d *doctor) subjects(ctx context.Context) []Finding {
	stream, err := d.js.Stream(ctx, d.bus.Lane(events.EventStream.Name))
	if err != nil {
		return found(unseen, "", "%v", err)
	}
	all := events.EventStream.Subjects(d.bus.Cluster())[0]
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(all))
	if err != nil {
		return found(unseen, "", "%v", err)
	}
	prefix := strings.TrimSuffix(all, ">")
	heard := info.State.Subjects
	maps.DeleteFunc(heard, func(subject string, _ uint64) bool { return isEvent(strings.TrimPrefix(subject, prefix)) })
	if len(heard) == 0 {
		return found(fine, "", "all that was said is of a kind that this build knows")
	}
	unknown := slices.Sorted(maps.Keys(heard))
	return found(warning, "mend who says them: events/README.md lists the subjects, each with its data; "+
		"where the services are of another build, ask its doctor",
		"said on %s of no kind that this build knows, such as %s", tell.Count(len(unknown), "subject", "subjects"), unknown[0])
}

// refused tells of messages that services could not read as events: who said them was acknowledged.
func (d *doctor) refused(ctx context.Context) []Finding {
	var newest events.Quarantine
	var at time.Time
	count := 0
	err := connect.Read(ctx, d.bus, []events.Kind{events.EventRefused}, connect.Span{}, func(event events.Event) {
		if events.Decode(event.Data, &newest) == nil {
			count, at = count+1, event.Logged
		}
	})
	switch {
	case err != nil:
		return found(unseen, "", "%v", err)
	case count == 0:
		return found(fine, "", "no message was refused that the log remembers")
	}
	return found(warning, "mend who says them: events/README.md shows an event by hand", "%s refused, the last one %s, as %s, on %s: %s",
		tell.Count(count, "message was", "messages were"), at.Local().Format("01-02 15:04:05"), newest.Reason, newest.Subject,
		newest.Detail)
}

// isEvent reports whether a subject behind its prefix is a kind of event and what that is about, and by whom where that follows.
func isEvent(subject string) bool {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 3 {
		return false
	}
	row, known := events.Kind(tokens[0] + "." + tokens[1]).Row()
	about := events.Event{Kind: row.Kind, Subject: tokens[2]}
	return known && !row.Plan && strings.HasSuffix(about.SubjectBy(strings.Join(tokens[3:], ".")), "."+subject)
}
