package overlay

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// beginAnew takes that what was trained under the plan in force is given up, and with it who was a member, and what was refused.
func (o *Overlay) beginAnew(event events.Event) {
	reset := o.resets.Take(event)
	if reset == nil {
		return
	}
	if o.end != nil && o.end.Generation <= reset.Generation {
		o.end = nil
	}
	if !reset.Snapshots {
		clear(o.snapshots) // none that was told before counts, whether a later plan is known already or not
	}
	if o.plan == nil {
		return
	}
	if reset.Generation != o.plan.Generation { // a plan of after it is known already
		o.forgetBefore(*reset)
		return
	}
	o.reset, o.stop = reset, nil
	for _, member := range o.plan.Nodes {
		if told := o.told[member.Node]; told != nil && told.join != nil && told.join.Incarnation == member.Incarnation {
			delete(o.told, member.Node)
		}
	}
	maps.DeleteFunc(o.told, func(_ string, told *told) bool { return told.gone || told.leaving })
	for _, told := range o.told {
		told.refusal = nil
	}
}

// forgetBefore takes that nobody is missed who was given up, or fell silent, before a reset. Members of the plan in force are of after it.
func (o *Overlay) forgetBefore(reset events.JobReset) {
	maps.DeleteFunc(o.told, func(node string, told *told) bool {
		_, isMember := o.plan.Member(node)
		return !isMember && (told.gone || told.leaving || slices.Contains(reset.Silent, node))
	})
}

// Reset returns that of training, since the last commit; nil where what was trained counts.
func (o *Overlay) Reset() *events.JobReset { return o.reset }

// SaysReset tells of a reset after which there is no plan yet.
func SaysReset(reset events.JobReset) string {
	how := "begins anew"
	if reset.Snapshots {
		how = "goes on from its newest snapshot"
	}
	return fmt.Sprintf("training %s once nodes join, as somebody asked: %s", how, reset.Reason)
}
