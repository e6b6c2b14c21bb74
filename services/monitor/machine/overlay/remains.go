package overlay

import (
	"fmt"
	"strings"
	"time"
)

// keepsFor is for how long an agent that keeps what its trainer left is taken to live without a sign of it: it looks as often whether
// others need that (services/agent/local), and is heard while it gives.
const keepsFor = 6 * time.Minute

// Remains are the nodes that may hold what is missing, of whom no process of the plan is heard. A node that is proven to be gone is in no
// list.
type Remains struct {
	Back    []string // another process has the name, and asked for a place: it tells what it holds
	Keep    []string // their agents said that they keep what their trainers left
	Unheard []string // nobody has said yet what became of them
	Unknown []string // they are lost, and nothing proves that they have ended

	newest    Snapshot // complete one that outlives its processes; its step is zero where none is known
	unchanged bool     // scripts keep their own state (--unchanged)
}

// RemainsOf returns those of some nodes that have a place and are not heard. Newest is as NewestOf returns it.
func RemainsOf(nodes []Node, newest Snapshot, now time.Time) (remains Remains) {
	remains.newest = newest
	for _, node := range nodes {
		remains.unchanged = remains.unchanged || node.Stepless
		switch {
		case node.Pipeline == nil || node.State == Ended || node.Proven:
		case node.State == Joining && node.Pulse != nil:
			remains.Back = append(remains.Back, node.Node)
		case node.Pulse != nil:
		case !node.Keeps.IsZero() && now.Sub(node.Keeps) < keepsFor:
			remains.Keep = append(remains.Keep, node.Node)
		case node.State == Silent || node.State == Suspected:
			remains.Unheard = append(remains.Unheard, node.Node)
		default:
			remains.Unknown = append(remains.Unknown, node.Node)
		}
	}
	return remains
}

// Any reports whether any node may hold what is missing.
func (r Remains) Any() bool { return len(r.Back)+len(r.Keep)+len(r.Unheard)+len(r.Unknown) > 0 }

// Do says what has training go on; held tells that the cluster holds, so that no more is to be said of those who are not heard. A new
// beginning is advised only where nobody may hold the state.
func (r Remains) Do(held bool) string {
	unknown := r.Unknown
	if held {
		unknown = append(unknown, r.Unheard...)
	}
	switch {
	case len(r.Keep) > 0:
		return fmt.Sprintf("leave the agents of %s running: they keep the state. Each starts its script again, and once it does so no "+
			"more, it gives the state to a node that joins: start one (reknit agent run -- COMMAND). If these agents ended, that is taken "+
			"for certain after %.0f min", few(r.Keep), keepsFor.Minutes())
	case len(r.Back) > 0:
		return fmt.Sprintf("wait: %s asked for a place again, and will tell what is held there", few(r.Back))
	case len(r.Unheard) > 0 && !held:
		return fmt.Sprintf("it is not known yet whether %s ended: look again in a minute", few(r.Unheard))
	case r.unchanged && len(unknown) > 0:
		return looks(unknown) + "Start those that do not run again by the names they had: their scripts keep their own state (--unchanged), " +
			"and go on from their own checkpoints"
	case r.unchanged:
		return "once the scripts are started again by the names that their nodes had, they go on from their own checkpoints"
	case len(unknown) > 0 && r.newest.Step > 0:
		return looks(unknown) + "Else " + r.newest.GoOn()
	case len(unknown) > 0:
		return looks(unknown) + "The log tells of no snapshot: " + fromAnOlder + ". Only if none of them runs any more, and there is none, the state " +
			"is gone. To begin anew at the first step then: reknit cluster reset"
	case r.newest.Step > 0:
		return r.newest.GoOn()
	}
	return "the log tells of no snapshot: " + fromAnOlder + ". If there is none, the state of those that ended is gone. To begin anew at the first " +
		"step then: reknit cluster reset"
}

// fromAnOlder is for a snapshot of which the log tells no more: events are dropped after some days, and what lies in a folder is not.
const fromAnOlder = "if there is one that is older than the log, start the scripts again with its REKNIT_SNAPSHOT_FOLDER or REKNIT_SNAPSHOT_BUCKET, " +
	"and training goes on from there"

// looks says what to do first where nothing proves that some nodes ended.
func looks(unknown []string) string {
	return fmt.Sprintf("nothing proves that %s ended: look at the machine first. A process that is stopped, swaps or does not reach NATS "+
		"goes on by itself once that is over. ", few(unknown))
}

// few names some nodes, and says how many there are beside.
func few(nodes []string) string {
	says := strings.Join(nodes[:min(mostNamed, len(nodes))], ", ")
	if others := len(nodes) - mostNamed; others > 0 {
		says += fmt.Sprintf(" and %d more", others)
	}
	return says
}
