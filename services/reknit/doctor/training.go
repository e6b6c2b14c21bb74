package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/history"
	"github.com/reknit/reknit/services/reknit/inventory"
)

// training tells why no plan is possible, where that is so, and else whether training gets on.
func (d *doctor) training(ctx context.Context) []Finding {
	last, err := history.Last(ctx, d.bus, 1)
	if err != nil {
		return found(unseen, "", "%v", err)
	}
	if len(last) == 0 || last[len(last)-1].Held == nil {
		return d.progress(ctx)
	}
	change := last[len(last)-1]
	todo := "start who is missing again, by the name it had, or others in its place: reknit explain says who is waited for. " +
		"Where nobody has what is missing, and no snapshot was kept, it can only begin anew: reknit cluster reset"
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

// progress tells whether the loss is finite and steps are made, by the heartbeats of those who train.
func (d *doctor) progress(ctx context.Context) []Finding {
	heard, err := inventory.Pulses(ctx, d.bus)
	if err != nil {
		return found(unseen, "see whether this user may hear heartbeats", "%v", err)
	}
	known := overlay.New()
	if err := connect.Read(ctx, d.bus, overlay.SnapshotKinds, connect.Span{}, known.Take); err != nil {
		return found(unseen, "see whether this user may read the log", "%v", err)
	}
	var diverged uint64
	still, usual := 1e9, 0.0 // of the trainer that made a step last
	for _, pulse := range heard {
		if since := overlay.DivergedSince(pulse); since > 0 && (diverged == 0 || since < diverged) {
			diverged = since
		}
		if pulse.StillSeconds > 0 && pulse.StillSeconds < still {
			still, usual = pulse.StillSeconds, pulse.StepSeconds
		}
	}
	if diverged > 0 {
		says, todo := overlay.Diverged(diverged, known.Snapshots())
		return found(wrong, todo, "%s", says)
	}
	if late := overlay.SaysLate(time.Duration(still*float64(time.Second)), usual); late != "" {
		return found(wrong, "look at the log of that script, and kill the script if it hangs: its agent starts it again", "%s", late)
	}
	return found(fine, "", "nothing holds it up")
}
