package machine

// Snapshot is what may be asked of a machine: heartbeats tell some of it, tests look at all.
type Snapshot struct {
	Membership  string
	Incarnation string
	Generation  uint64  // of the plan taken up; zero for none
	Known       uint64  // generation of the newest plan known to exist
	Trainer     string  // where the training loop is
	Step        uint64  // completed steps
	Promise     *uint64 // completed steps not to be passed; nil for none
	Stop        *uint64 // completed steps at which training stops or the next plan takes over; nil where none is known
	Diverged    uint64  // the first of the last steps whose loss is not finite; zero: it is, or is not known here
	Awaited     uint64  // generation before which nothing is trained; zero for none
	Negotiation string  // under way; empty for none
	Phase       string  // of this node's part of it
	Kept        int     // events that wait for a plan
	Pace        float64 // seconds from one completed step of the plan to the next, on average; zero: not known
}

// Snapshot returns what the machine knows.
func (m *Machine) Snapshot() Snapshot {
	snapshot := Snapshot{
		Membership: m.membership.String(), Incarnation: m.incarnation, Generation: m.generation(), Known: m.newest.generation,
		Trainer: m.trainer.String(), Step: m.step(), Promise: m.promise, Stop: m.stop(), Awaited: m.awaited, Diverged: m.diverged,
		Kept: len(m.overtaking), Pace: m.pace.between.value,
	}
	if m.negotiation != nil {
		snapshot.Negotiation, snapshot.Phase = m.negotiation.opening.payload.Negotiation, m.negotiation.phase.String()
	}
	return snapshot
}
