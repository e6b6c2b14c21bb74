package events

// SnapshotPart tells that a node wrote its part of a snapshot to its end. The restorer says that a snapshot is complete once its parts have
// all units. A node that has no room for the next one asks to withdraw a part. It hears that the part counts no more, or that the snapshot
// is complete.
type SnapshotPart struct {
	Node  string  `json:"node" is:"token"`
	Tier  string  `json:"tier" is:"one=memory|disk|remote"` // where it lies
	Step  uint64  `json:"step"`                             // completed steps
	Plan  string  `json:"plan" is:"digest"`                 // digest of the plan under which the step was trained
	Units []Range `json:"units" is:"count=1..4096,each=units"`
}

// SnapshotRequest fixes the step at which all who train stop for good, and has them write a snapshot of it to the tiers that
// outlive their processes.
type SnapshotRequest struct {
	Negotiation string `json:"negotiation" is:"token"`
	Step        uint64 `json:"step"` // completed steps
	// Unchanged tells that the scripts keep the state themselves (Job.Unchanged): no snapshot is written, and the step is of the byte that
	// their agents hold in its place.
	Unchanged bool `json:"unchanged,omitempty"`
}

// CompleteSnapshot tells that the nodes of a plan together wrote all units of a snapshot to a tier. Nobody removes a part
// of the newest complete one.
type CompleteSnapshot struct {
	Tier string `json:"tier" is:"one=memory|disk|remote"`
	Step uint64 `json:"step"`             // completed steps
	Plan string `json:"plan" is:"digest"` // digest of the plan under which the step was trained
}

// OverdueSnapshot tells that units of a snapshot were not written by when parts of the second one after it were. A unit that has several
// holders is written by another of them from here on.
type OverdueSnapshot struct {
	Tier  string  `json:"tier" is:"one=memory|disk|remote"`
	Step  uint64  `json:"step"`                                // completed steps
	Plan  string  `json:"plan" is:"digest"`                    // digest of the plan under which the step was trained
	Units []Range `json:"units" is:"count=1..4096,each=units"` // that nobody wrote
}

// SnapshotFailure tells that a node could not write its part of a snapshot. It tells each finding in a tier once until it writes there
// again (snapshot.resumed), and again of the snapshot at which all stop.
type SnapshotFailure struct {
	Node    string   `json:"node" is:"token"`
	Tier    string   `json:"tier" is:"one=disk|remote"`
	Step    uint64   `json:"step"`                                // completed steps
	Plan    string   `json:"plan" is:"digest"`                    // digest of the plan under which the step was trained
	Units   []Range  `json:"units" is:"count=1..4096,each=units"` // that it was to write
	Finding string   `json:"finding" is:"one=full|read-only|refused|slow|other"`
	Reason  string   `json:"reason" is:"reason"`
	Tiers   []string `json:"tiers" is:"count=1..2,each=token"` // all to which the node writes snapshots that outlive its process
}

func (s *SnapshotPart) Validate() error {
	c := within(s)
	c.ranges("units", s.Units)
	return c.err
}

func (s *SnapshotFailure) Validate() error {
	c := within(s)
	c.ranges("units", s.Units)
	return c.err
}

func (s *SnapshotRequest) Validate() error { return within(s).err }

func (s *CompleteSnapshot) Validate() error { return within(s).err }

func (s *OverdueSnapshot) Validate() error {
	c := within(s)
	c.ranges("units", s.Units)
	return c.err
}
