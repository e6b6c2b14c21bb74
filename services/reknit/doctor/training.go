package doctor

import (
	"context"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/history"
)

// training tells why no plan is possible, where that is so.
func (d *doctor) training(ctx context.Context) []Finding {
	last, err := history.Last(ctx, d.bus, 1)
	if err != nil {
		return found(unseen, "", "%v", err)
	}
	if len(last) == 0 || last[len(last)-1].Held == nil {
		return found(fine, "", "nothing holds it up")
	}
	change := last[len(last)-1]
	todo := "start who is missing again, by the name it had, or others in its place: reknit explain says who is waited for. " +
		"Where nobody has what is missing, and no snapshot was kept, only a new cluster helps: reknit up --cluster OTHER"
	if change.Held.Step != nil {
		todo = "see in their logs what ended these trainers, mend it, and run: reknit step retry; " +
			"or have the samples passed over: reknit step skip"
	} else if strings.HasPrefix(change.Held.Reason, events.OlderLog) {
		todo = "put the newer store of NATS back, with NATS stopped; where there is none any more: reknit log accept"
	} else if !change.Stops() {
		todo = "training goes on as it is, and the change is tried again now and then: reknit explain says what was in its way"
	}
	return found(wrong, todo, "the cluster holds: %s", change.Held.Reason)
}
