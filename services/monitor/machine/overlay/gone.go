package overlay

import (
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// Gone is a node that is no member any more, and has not asked for a place again.
type Gone struct {
	Node   string    `json:"node"`
	Left   bool      `json:"left,omitempty"`   // somebody asked that it leave; else it was given up
	Proven bool      `json:"proven,omitempty"` // its process is gone for certain
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// goneStays is for how long it is told that a node is gone.
const goneStays = time.Hour

// Gone lists who went in the last hour, the last first. Once the job is complete, stopped or begun anew nobody is missed.
func (o *Overlay) Gone(pulses map[string]events.Pulse, now time.Time) (all []Gone) {
	if o.plan == nil || o.end != nil || o.stop != nil || o.reset != nil {
		return nil
	}
	for name, told := range o.told {
		_, isMember := o.plan.Member(name)
		_, isHeard := pulses[name]
		went := told.join != nil && told.refusal == nil && (told.leaving || told.gone)
		if went && !isMember && !isHeard && now.Sub(told.went) < goneStays {
			all = append(all, Gone{Node: name, Left: told.leaving, Proven: told.proven, Reason: told.reason, At: told.went})
		}
	}
	slices.SortFunc(all, func(a, b Gone) int { return b.At.Compare(a.At) })
	return all
}

// Says tells when the node went and why, and how it comes back. In a secured installation one whose kit was revoked never does.
func (g Gone) Says(secured bool) string {
	const start = "start it again to have it back (reknit agent run -- COMMAND)"
	how, back := "was given up", "it comes back by itself where it runs on"
	switch {
	case g.Left:
		how, back = "left", start
	case g.Proven:
		back = "its agent starts it again while that runs"
	}
	if !g.Left && secured {
		back += ", unless its kit was revoked"
	}
	if !g.Left {
		back += "; else " + start
	}
	return fmt.Sprintf("%s %s at %s: %s; %s", g.Node, how, g.At.Local().Format("15:04:05"), g.Reason, back)
}
