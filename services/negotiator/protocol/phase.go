package protocol

// Phase is how far a negotiation has come.
type Phase string

const (
	Consenting   Phase = "consenting"   // members answer and say what they hold
	Planning     Phase = "planning"     // the planner searches
	Restoring    Phase = "restoring"    // the restorer decides who becomes whom
	PreCopying   Phase = "pre-copying"  // layers move while training goes on
	Promising    Phase = "promising"    // members name the step at which they can stop
	Transferring Phase = "transferring" // all stop at one step, shards move
	Stopping     Phase = "stopping"     // all stop at one step for good, and write a snapshot of it, unless scripts keep the state
)

// Wait is for whom a phase waits: members are given up after a deadline, and shards moved anew. A service that was killed
// resumes from the log and answers then; one whose answer never comes is asked anew.
type Wait struct {
	Members, Shards, Snapshot bool
	Service                   string
}

// Waits says for whom each phase waits.
var Waits = map[Phase]Wait{
	Consenting:   {Members: true},
	Planning:     {Service: "planner"},
	Restoring:    {Service: "restorer"},
	PreCopying:   {Shards: true},
	Promising:    {Members: true},
	Transferring: {Shards: true},
	Stopping:     {Snapshot: true},
}

// Urgency is how much a change presses.
type Urgency int

const (
	Patient  Urgency = iota // it can wait for the commit
	Pressing                // it may have a deadline
	Urgent                  // the plan in force, or the negotiation under way, cannot go on
)

// MostRenewals is how many negotiations end, between two commits, for changes that are not urgent. It bounds how long
// training stands still for those who come and go: by as many negotiations beyond the one that it needs.
const MostRenewals = 3

// Supersedes reports whether a new change ends the negotiation under way, which then starts again with both changes.
// Others wait for the commit, all together: a herd of joins would else end each other's negotiations, and none would
// come to its commit. Nobody gains by waiting if training stopped before the negotiation began, and a newcomer may have
// what is missing. So the negotiation then starts again, at most MostRenewals times.
func Supersedes(change Urgency, phase Phase, stopped bool, renewals int) bool {
	switch {
	case phase == Transferring || phase == Stopping || renewals >= MostRenewals:
		return change == Urgent
	case stopped:
		return true
	}
	return change >= Pressing
}
