package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
)

// takeOut is what ends it that two copies differ.
const takeOut = "look for errors of memory in the logs of these machines, and start the trainer anew where they are: " +
	"it takes the others' copy"

// replicas looks for copies that differ, of which nobody can tell which is right. They were mended if somebody could tell.
func (d *doctor) replicas(ctx context.Context) (all []Finding) {
	rest, err := connect.Resting(ctx, d.bus)
	switch end := rest.End; {
	case err != nil:
		return found(wrong, "see whether this user may read the log", "%v", err)
	case end != nil && len(end.Differ) > 0:
		return found(wrong, "keep none of the models before you know which is right, or train again in another cluster",
			"the job is complete: %v", end)
	case end != nil:
		return found(fine, "", "the job is complete: %v", end)
	}
	differ, err := d.undecided(ctx)
	if err != nil {
		return found(wrong, "see whether this user may read the log", "%v", err)
	}
	for _, unit := range slices.Sorted(maps.Keys(differ)) {
		one := differ[unit]
		all = append(all, found(wrong, takeOut, "%s differed between %s after step %d, %s ago, and nobody can tell which is right", unit,
			strings.Join(one.holders(), ", "), one.Step, time.Since(one.at).Round(time.Second))...)
	}
	if len(all) == 0 {
		return found(fine, "", "no copies differ")
	}
	return all
}

// divergence is one that was told at some time.
type divergence struct {
	events.Divergence
	at time.Time
}

func (d divergence) holders() (nodes []string) {
	for _, replica := range d.Replicas {
		nodes = append(nodes, replica.Node)
	}
	return nodes
}

// undecided returns by unit what was last told under the plan in force, where that says of no copy that it is right.
func (d *doctor) undecided(ctx context.Context) (map[string]divergence, error) {
	differ, generation := map[string]divergence{}, uint64(0)
	kinds := []events.Kind{events.Committed, events.ReplicaDiverged}
	err := connect.Read(ctx, d.bus, kinds, connect.Span{}, func(event events.Event) {
		if committed, err := events.Open[events.Commitment](event); event.Kind == events.Committed && err == nil {
			generation = committed.Generation
			clear(differ)
		}
		told, err := events.Open[events.Divergence](event)
		switch {
		case event.Kind != events.ReplicaDiverged || err != nil || told.Generation != generation:
		case told.Digest == "":
			differ[event.Subject] = divergence{told, event.Logged}
		default:
			delete(differ, event.Subject)
		}
	})
	return differ, err
}
