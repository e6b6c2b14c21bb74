// Package changes makes changes of what a cluster's log tells: what brought each about, how long every phase of it took
// and for whom it waited, which attempts ended without a plan and why.
package changes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// Change is how a cluster came, or comes, to a generation.
type Change struct {
	Generation uint64           `json:"generation"`
	State      string           `json:"state"` // one of the constants
	Changes    []events.Change  `json:"changes"`
	Reasons    []Reason         `json:"reasons,omitempty"` // of losses and of steps that broke, as they were told
	Began      time.Time        `json:"began"`             // by the log's clock: the first fact or request that it answers
	Held       *events.Hold     `json:"held,omitempty"`    // why no plan was possible, as the cluster said last
	Waiting    *events.Deferral `json:"waiting,omitempty"` // why none was better than to wait
	// Abandoned is whether the step under way was given up for it. Nobody trains then until there is a plan.
	Abandoned bool `json:"abandoned,omitempty"`
	// Recalled is whether the log had lost the plan before, and nodes told it: those that join again were there all the time.
	Recalled     bool             `json:"recalled,omitempty"`
	Phases       []Phase          `json:"phases"`       // in order; they add up to the total, unless one is under way
	TotalSeconds float64          `json:"totalSeconds"` // until now, where it is pending or negotiated
	StallSeconds float64          `json:"stallSeconds"` // the longest that a trainer saw, beyond one usual step
	StallSteps   float64          `json:"stallSteps"`   // the same in usual steps
	StallNode    string           `json:"stallNode,omitempty"`
	BackTo       *uint64          `json:"backTo,omitempty"`     // the step of the snapshot that training went back to
	LostSteps    uint64           `json:"lostSteps,omitempty"`  // that training went back by, as far as nodes had told
	AtMost       bool             `json:"lostAtMost,omitempty"` // it may have been fewer: none had told
	BytesMoved   int64            `json:"bytesMoved"`
	NaiveBytes   int64            `json:"naiveBytes"` // a restart: every place reads its layers anew
	Policy       string           `json:"policy,omitempty"`
	Shape        string           `json:"shape,omitempty"`
	Fetches      []Fetch          `json:"fetches,omitempty"` // what is to move, by who receives it
	Receipts     []events.Receipt `json:"receipts,omitempty"`
	Attempts     []Attempt        `json:"attempts"`           // negotiations; the last one is the one that counts
	Refusals     []Refusal        `json:"refusals,omitempty"` // of requests and memberships, since the generation before
	// Released is what became of the step that was held last, in which trainers ended one after the other.
	Released *events.Release `json:"released,omitempty"`
}

// Stops reports whether nobody trains until there is a plan, and none is possible for those who live.
func (c Change) Stops() bool { return c.Held != nil && (c.Abandoned || len(c.Attempts) == 0) }

// Reason is why a node was lost, or its step broke.
type Reason struct {
	Node    string    `json:"node"`
	Says    string    `json:"says"`
	Since   time.Time `json:"since,omitzero"`    // nothing was heard of the node, or it hung; left out of one that ended
	Seconds float64   `json:"seconds,omitempty"` // from then until it was lost
	Hung    bool      `json:"hung,omitempty"`    // it was heard, and did nothing
}

// Noticed says since when a node was missed, and how long it took to notice; empty where it ended and was lost at once.
func (r Reason) Noticed() string {
	if r.Seconds <= 0 {
		return ""
	}
	how := "heard last at"
	if r.Hung {
		how = "hung from"
	}
	return fmt.Sprintf("%s %s, noticed %.1f s later", how, r.Since.Local().Format("15:04:05"), r.Seconds)
}

// Refusal is what was refused, and when.
type Refusal struct {
	events.Refusal
	At time.Time `json:"at"` // by the log's clock
}

// What says in some words what was refused.
func (r Refusal) What() string {
	if r.Refused == events.RefusedMembership {
		return "the membership of " + r.Node
	}
	return r.Refused + " of " + r.Node
}

// The states of a change.
const (
	Pending     = "pending"     // nothing is negotiated now: the cluster holds, or waits
	Negotiating = "negotiating" // somebody is waited for, as the last attempt tells
	Committed   = "committed"   // there is a plan, and some have not completed a step under it
	Working     = "working"     // all have
	Over        = "over"        // the job was complete before it was done
	Stopped     = "stopped"     // training has stopped by it, as it was to, and no plan follows
	Refused     = "refused"     // what was asked for was refused, before a negotiation or after it
	Withdrawn   = "withdrawn"   // whoever asked to join has left or is lost, and nothing else was to change
)

// Phase is a part of the time that a change took.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Last    string  `json:"last,omitempty"` // who was waited for at its end
}

// Fetch is what one node receives to take its place.
type Fetch struct {
	Node    string   `json:"node"`
	Bytes   int64    `json:"bytes"`
	Sources []string `json:"sources"`
}

// Attempt is a negotiation.
type Attempt struct {
	Negotiation string            `json:"negotiation"`
	Opened      time.Time         `json:"opened"`
	Seconds     float64           `json:"seconds"`              // until it ended, or until now
	Ended       string            `json:"ended,omitempty"`      // why, where it ended without a plan
	Superseded  bool              `json:"superseded,omitempty"` // by another one, with more changes
	Phase       string            `json:"phase,omitempty"`      // in which it is, or ended
	Members     int               `json:"members"`              // who are to consent
	Awaits      []string          `json:"awaits,omitempty"`     // nodes and services, where it is under way
	Delays      map[string]string `json:"delays,omitempty"`     // by node that asked for time: what it is busy with
	Overdue     int               `json:"overdue,omitempty"`    // how often somebody was waited for too long
	Said        []string          `json:"said,omitempty"`       // objections, refusals and failures, with who said them
}

// Phases of the time that a change took, in their order.
const (
	Notice    = "notice"           // nothing was heard of a node, or others waited for it, and it was not lost yet
	Queue     = "wait to begin"    // until a negotiation was opened
	Repeat    = "earlier attempts" // negotiations that came to nothing
	Consent   = "consent"
	Plan      = "plan"
	Restore   = "restore"
	PreCopy   = "pre-copy"
	Promise   = "promise"
	Transfer  = "transfer"
	Commit    = "commit"
	FirstStep = "first step" // until all completed one under the plan
)

// Phases that a negotiation is in, as the negotiator calls them.
const (
	Consenting   = "consenting"
	Planning     = "planning"
	Restoring    = "restoring"
	PreCopying   = "pre-copying"
	Promising    = "promising"
	Transferring = "transferring"
	Stopping     = "stopping"
)

// released says in a line that a step is released, and what else changes.
func (c Change) released(release events.Release) string {
	says := fmt.Sprintf("retry of step %d", release.Step)
	if release.Skip {
		says = fmt.Sprintf("skip of step %d", release.Step)
	}
	if c.Released = nil; len(c.Changes) > 0 {
		says += ", " + c.What()
	}
	return says
}

// Slowest returns the phase that took longest.
func (c Change) Slowest() Phase {
	if len(c.Phases) == 0 {
		return Phase{}
	}
	return slices.MaxFunc(c.Phases, func(a, b Phase) int { return cmp.Compare(a.Seconds, b.Seconds) })
}

// IsHold reports whether nothing is to change but that the cluster holds.
func (c Change) IsHold() bool {
	return c.Released == nil && c.State != Refused && len(c.Changes) == 0 && c.Held != nil
}

// What says in a line what changes.
func (c Change) What() string {
	if release := c.Released; release != nil { // the change is for that, whatever else is in it
		return c.released(*release)
	}
	switch {
	case c.State == Refused && len(c.Changes) == 0:
		return c.Refusals[len(c.Refusals)-1].What()
	case c.IsHold():
		return "the cluster holds" // Held tells why, and what to do
	case len(c.Changes) == 0:
		return "no change"
	}
	var parts []string
	changes := c.Changes
	if c.Recalled {
		changes = claims(changes)
	}
	for _, kind := range kindsOf(changes) {
		var of []string
		for _, change := range changes {
			if change.Kind == kind {
				of = append(of, strings.TrimSuffix(change.Node+"-"+change.Peer, "-"))
			}
		}
		part := kind + " of " + of[0]
		if len(of) > 1 {
			part = fmt.Sprintf("%s of %s and %d more", kind, of[0], len(of)-1)
		}
		parts = append(parts, part)
	}
	if c.Recalled {
		parts = append(parts, "for the log was lost or replaced")
	}
	return strings.Join(parts, ", ")
}

// claims puts one claim in the place of the failure and the join of each node that has both: its process lived, and the log forgot it.
func claims(changes []events.Change) (all []events.Change) {
	failed, joined := map[string]bool{}, map[string]bool{}
	for _, change := range changes {
		failed[change.Node] = failed[change.Node] || change.Kind == events.ChangeFailure
		joined[change.Node] = joined[change.Node] || change.Kind == events.ChangeJoin
	}
	for _, change := range changes {
		switch {
		case change.Kind == events.ChangeJoin && failed[change.Node]:
			change.Kind = "claim"
		case change.Kind == events.ChangeFailure && joined[change.Node]:
			continue
		}
		all = append(all, change)
	}
	return all
}

// kindsOf lists the kinds of changes, each once, in their order.
func kindsOf(changes []events.Change) (kinds []string) {
	for _, change := range changes {
		if !slices.Contains(kinds, change.Kind) {
			kinds = append(kinds, change.Kind)
		}
	}
	return kinds
}

// fetchesOf sums the transfers of a migration, by receiver.
func fetchesOf(migration events.Migration) (all []Fetch) {
	at := map[string]int{}
	for _, transfer := range migration.Transfers {
		i, known := at[transfer.To]
		if !known {
			i = len(all)
			at[transfer.To], all = i, append(all, Fetch{Node: transfer.To})
		}
		all[i].Bytes += transfer.Bytes
		for _, source := range transfer.Sources {
			if !slices.Contains(all[i].Sources, source.Node) {
				all[i].Sources = append(all[i].Sources, source.Node)
			}
		}
	}
	slices.SortFunc(all, func(a, b Fetch) int { return strings.Compare(a.Node, b.Node) })
	return all
}
