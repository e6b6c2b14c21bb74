package invariants

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// Any overlap with a step that somebody had skipped was taken for asked, however many samples went with it.
func TestOnlySamplesThatSomebodyAskedForArePassedOverAndLessThanABatchBefore(t *testing.T) {
	asked := []events.Samples{{First: 24, Count: 12}}
	twice := []events.Samples{{First: 40, Count: 12}, {First: 24, Count: 12}}
	for _, c := range []struct {
		asked   []events.Samples
		skipped events.Samples
		ok      bool
	}{
		{asked, events.Samples{First: 24, Count: 12}, true},
		{asked, events.Samples{First: 20, Count: 16}, true},  // the batch is 8 since
		{asked, events.Samples{First: 16, Count: 20}, false}, // a whole batch lies before
		{asked, events.Samples{First: 24, Count: 24}, false}, // as many behind
		{twice, events.Samples{First: 24, Count: 28}, true},  // four lie between
		{[]events.Samples{{First: 44, Count: 12}, {First: 24, Count: 12}}, events.Samples{First: 24, Count: 32}, false},
		{nil, events.Samples{First: 24, Count: 12}, false},
	} {
		log := &Log{byKind: map[events.Kind][]*Entry{}}
		entry := &Entry{Event: events.Event{Logged: time.Unix(9, 0)}}
		for i, samples := range c.asked {
			log.byKind[events.StepReleased] = append(log.byKind[events.StepReleased], &Entry{
				Event: events.Event{Logged: time.Unix(int64(i), 0)}, Payload: &events.Release{Samples: samples, Skip: true}})
		}
		asked := &events.Release{Samples: events.Samples{First: 36, Count: 24}, Skip: true}
		later := &Entry{Event: events.Event{Logged: time.Unix(10, 0)}, Payload: asked}
		log.byKind[events.StepReleased] = append(log.byKind[events.StepReleased], later)
		plan := &events.Plan{Data: events.Data{GlobalBatch: 8, ConsumedSamples: c.skipped.End(), Skipped: &c.skipped}}
		if found := unasked(log, entry, plan); len(found) == 0 != c.ok {
			t.Errorf("asked for %v, %v are passed over: %v", c.asked, c.skipped, found)
		}
	}
}
