package overlay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// DivergedSince returns the first step since which the loss of a heartbeat's node is not finite, in completed ones; zero: it is. An
// agent of a build before tells no first step: it is the last one then.
func DivergedSince(pulse events.Pulse) uint64 {
	if !pulse.LossNotFinite {
		return 0
	}
	return cmp.Or(min(pulse.LossNotFiniteSince, pulse.Step), pulse.Step)
}

// Diverged tells in a line since which step the loss is not finite, and which snapshot is from before; and what to do.
func Diverged(since uint64, tiers []Snapshot) (says, todo string) {
	says = fmt.Sprintf("the loss is not finite since step %d: training has diverged, and more steps mend nothing", since)
	newest := NewestOf(slices.DeleteFunc(slices.Clone(tiers), func(tier Snapshot) bool { return tier.Step >= since }))
	if newest.Step == 0 {
		return says, "end it, mend what made it so (the samples, the learning rate), and begin anew, or from your own checkpoint of " +
			"before: no snapshot from before is known"
	}
	says += fmt.Sprintf("; no snapshot is taken since, and that of step %d (%s) stays", newest.Step, newest.Tier)
	return says, fmt.Sprintf("end each trainer by two signals within 10 s (Ctrl-C twice), mend what made it so (the samples, the learning "+
		"rate), and start them again by the names they had: training goes on from step %d", newest.Step)
}
