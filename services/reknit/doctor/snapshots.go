package doctor

import (
	"context"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
)

// mendTier is what helps where snapshots are not written.
const mendTier = "see the logs of the agents (snapshot not written): a disk that is full, read-only or too slow, or keys that a bucket " +
	"does not take. Until one is complete, training goes back to the last one should all holders of a layer die at once"

// snapshots tells how old the newest complete one of each tier is. Only the log tells of the step under way here: a snapshot that was not
// complete when two behind it were being written is late.
func (d *doctor) snapshots(ctx context.Context) (all []Finding) {
	known := overlay.New()
	kinds := append([]events.Kind{
		events.TrainingReset, events.TrainingStopped, events.TrainingCompleted,
		events.JoinRequested, events.NodeLost, events.NodeExited,
	}, overlay.SnapshotKinds...)
	if err := connect.Read(ctx, d.bus, kinds, connect.Span{}, known.Take); err != nil {
		return found(wrong, "see whether this user may read the log", "%v", err)
	}
	for _, tier := range known.Snapshots() {
		now := time.Now()
		says, todo := tier.SaysFailing(now)
		if says != "" {
			all = append(all, found(warning, todo, "%s", says)...)
		}
		switch {
		case tier.Overdue > 0:
			all = append(all, found(warning, mendTier, "%s", tier.Says(now))...)
		case tier.Step > 0:
			all = append(all, found(fine, "", "%s: that of step %d is complete, %v ago", tier.Tier, tier.Step,
				now.Sub(tier.At).Round(time.Second))...)
		}
	}
	if len(all) == 0 {
		return found(fine, "", "none was written, and no node tells that it could not: without REKNIT_SNAPSHOT_* nobody takes any")
	}
	return all
}
