package events

import "fmt"

// The kinds of change that open a negotiation.
const (
	ChangeJoin       = "join"
	ChangeLeave      = "leave"
	ChangeFailure    = "failure"
	ChangeConnect    = "connect-link"
	ChangeDisconnect = "disconnect-link"
	ChangeLinkLost   = "link-failure"
	ChangeRestored   = "link-return" // of a link that had failed
	ChangeBroken     = "broken-step" // the nodes stay the same
)

var changeKinds = map[string]bool{
	ChangeJoin: true, ChangeLeave: true, ChangeFailure: true,
	ChangeConnect: true, ChangeDisconnect: true, ChangeLinkLost: true, ChangeRestored: true, ChangeBroken: true,
}

// Change is one thing that happened or is asked for.
type Change struct {
	Kind  string `json:"kind"`
	Node  string `json:"node"`
	Peer  string `json:"peer,omitempty"` // the other end, for a link
	Cause string `json:"cause"`          // id of the event that brought it
}

// Opening starts the negotiation of the next generation.
type Opening struct {
	Negotiation string   `json:"negotiation"`
	Generation  uint64   `json:"generation"` // that a commit will have; its parent is the generation before
	Changes     []Change `json:"changes"`
	Members     []Member `json:"members"` // who is to consent: all who are active, join or leave
	Abandon     bool     `json:"abandon"` // the step under way cannot end: stop now
	Connect     []Pair   `json:"connect"` // links to be opened and measured before consenting
	// Snapshots tells that living nodes may not have all units: members say what they can read of snapshots.
	Snapshots bool `json:"snapshots,omitempty"`
}

// Consent is a member's answer to an opening.
type Consent struct {
	Negotiation string `json:"negotiation"`
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Accepted    bool   `json:"accepted"`
	Reason      string `json:"reason,omitempty"`
	// Refuses are the nodes whose joins are not accepted. Where they are named, nothing else is objected to.
	Refuses  []string  `json:"refuses,omitempty"`
	Step     uint64    `json:"step"` // completed steps
	Holdings []Holding `json:"holdings"`
	// Claims are what a node holds that was given up while it lived. Each counts only where nobody contradicts it.
	Claims []Claim `json:"claims,omitempty"`
	// Trained is the generation of the plan under which the claims were trained.
	Trained uint64 `json:"trained,omitempty"`
	// Snapshots are what the node can read, where the opening asks for them; newest first.
	Snapshots    []Snapshot    `json:"snapshots,omitempty"`
	Measurements []Measurement `json:"measurements,omitempty"`
}

// Holding is layers a node can give, each at the newest step and, kept for a roll-back, possibly at the one before.
type Holding struct {
	Units   Range    `json:"units"`
	Steps   []uint64 `json:"steps"`             // versions, in completed steps; newest first
	Current bool     `json:"current,omitempty"` // the version goes with the step the node stops at
}

// Snapshot is units of an older step that a node can read from where they were written.
type Snapshot struct {
	Step uint64 `json:"step"` // completed steps
	Plan string `json:"plan"` // digest of the plan under which the step was trained: only what has both alike fits together
	// ConsumedSamples is the position in the data, after the step.
	ConsumedSamples uint64  `json:"consumedSamples"`
	Units           []Range `json:"units"`
}

// Claim is one unit of state that a node holds from a membership that has ended.
type Claim struct {
	Unit   int    `json:"unit"`
	Step   uint64 `json:"step"` // completed steps
	Digest string `json:"digest"`
}

// Delay says that a member lives and will answer an opening or a preparation later.
type Delay struct {
	Negotiation string `json:"negotiation"`
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Reason      string `json:"reason"` // what it is busy with
	// Seconds is how long that takes at most, where the node knows from its usual step; zero: not known.
	Seconds float64 `json:"seconds,omitempty"`
}

// Measured lists the links that members measured before they consented, to this negotiation or to one that ended before all had,
// as they are known now.
type Measured struct {
	Negotiation  string        `json:"negotiation"`
	Measurements []Measurement `json:"measurements"`
}

// Preparation says that the plan stands and asks each member for a stop step.
type Preparation struct {
	Negotiation string `json:"negotiation"`
	Generation  uint64 `json:"generation"`
}

// Promise is a member's word not to pass a step before the negotiation ends.
type Promise struct {
	Negotiation string `json:"negotiation"`
	Node        string `json:"node"`
	StopStep    uint64 `json:"stopStep"` // completed steps
}

// Schedule fixes the step at which all stop and the plan takes over. Where shards must move, they move there.
type Schedule struct {
	Negotiation string `json:"negotiation"`
	StopStep    uint64 `json:"stopStep"` // completed steps; members ahead of it roll back
	Plan        Plan   `json:"plan"`
}

// Commitment says that a negotiation ended with a committed plan.
type Commitment struct {
	Negotiation string `json:"negotiation"`
	Generation  uint64 `json:"generation"`
	PlanDigest  string `json:"planDigest"`
	// LostSteps are completed steps that no node at hand has any more, as far as is known: they are trained again.
	LostSteps uint64 `json:"lostSteps,omitempty"`
}

// Abort says that a negotiation ended without a plan. What was promised in it no longer binds.
type Abort struct {
	Negotiation string `json:"negotiation"`
	Generation  uint64 `json:"generation"`
	Reason      string `json:"reason"`
	Superseded  bool   `json:"superseded"` // another negotiation follows at once with the same changes and more
}

// Overdue says that somebody waited too long, by the negotiator's clock. What comes of it is decided when the
// negotiator hears it in the log, where every answer that came in time stands before it.
type Overdue struct {
	Negotiation string `json:"negotiation"` // "none" where the cluster holds and is to be tried again
	Phase       string `json:"phase"`
	Round       int    `json:"round"` // counts within the phase
	// Node is the one whose wait or deadline is over, where the phase is none of a negotiation but joining or leaving.
	Node string `json:"node,omitempty"`
}

// Hold says that no plan is possible until the world changes.
type Hold struct {
	Reason string `json:"reason"`
	// Awaits are the nodes without which no plan is possible: the last to hold some unit of the state.
	Awaits []string `json:"awaits,omitempty"`
}

// Failure says why a step of a negotiation cannot be done.
type Failure struct {
	Negotiation string `json:"negotiation"`
	Reason      string `json:"reason"`
	Node        string `json:"node,omitempty"` // to blame; empty: nobody is
	// Givers are those whose offer the node could not verify: one of them may be wrong instead.
	Givers []string `json:"givers,omitempty"`
}

func (o *Opening) Validate() error {
	var c check
	c.token("negotiation", o.Negotiation)
	c.atLeast("generation", int64(o.Generation), 1)
	c.that(len(o.Changes) > 0, "changes", "at least one", 0)
	c.each(len(o.Changes), "changes", func(i int) error {
		var c check
		c.that(changeKinds[o.Changes[i].Kind], "kind",
			"join, leave, failure, connect-link, disconnect-link, link-failure or link-return", o.Changes[i].Kind)
		c.token("node", o.Changes[i].Node)
		return c.err
	})
	c.each(len(o.Members), "members", func(i int) error {
		var c check
		c.token("node", o.Members[i].Node)
		return c.err
	})
	return c.err
}

func (o *Consent) Validate() error {
	var c check
	c.token("negotiation", o.Negotiation)
	c.token("node", o.Node)
	c.reason(o.Reason)
	c.that(len(o.Refuses) == 0 || !o.Accepted, "refuses", "none where the change is accepted", len(o.Refuses))
	c.atMost("refuses", len(o.Refuses), mostRefused)
	c.each(len(o.Refuses), "refuses", func(i int) error {
		var c check
		c.token("node", o.Refuses[i])
		return c.err
	})
	c.atMost("holdings", len(o.Holdings), MostUnits)
	c.each(len(o.Holdings), "holdings", func(i int) error {
		var c check
		c.units(o.Holdings[i].Units)
		c.that(len(o.Holdings[i].Steps) >= 1 && len(o.Holdings[i].Steps) <= 8, "steps", "1 to 8 versions",
			len(o.Holdings[i].Steps))
		return c.err
	})
	c.atMost("claims", len(o.Claims), mostClaims)
	c.each(len(o.Claims), "claims", func(i int) error {
		var c check
		c.unit(o.Claims[i].Unit)
		c.digest("digest", o.Claims[i].Digest)
		return c.err
	})
	c.atMost("snapshots", len(o.Snapshots), MostSnapshots)
	c.each(len(o.Snapshots), "snapshots", func(i int) error { return o.Snapshots[i].validate() })
	c.atMost("measurements", len(o.Measurements), mostMeasurements)
	c.each(len(o.Measurements), "measurements", func(i int) error {
		var c check
		c.that(o.Measurements[i].From == o.Node, "from", "the node that consents: it measures its own links",
			o.Measurements[i].From)
		if c.err == nil {
			c.err = o.Measurements[i].Validate()
		}
		return c.err
	})
	return c.err
}

func (s *Snapshot) validate() error {
	var c check
	c.digest("plan", s.Plan)
	c.that(len(s.Units) >= 1 && len(s.Units) <= MostUnits, "units", fmt.Sprintf("1 to %d ranges", MostUnits), len(s.Units))
	c.each(len(s.Units), "units", func(i int) error {
		var c check
		c.units(s.Units[i])
		return c.err
	})
	return c.err
}

// MostSnapshots bounds those that a consent names: more than any tier keeps.
const MostSnapshots = 16

const (
	mostClaims       = 2 * MostUnits // a node keeps at most two versions of a unit
	mostMeasurements = 4096          // links of one node
	mostRefused      = 4096          // nodes that join at a time
	mostGivers       = 4096          // of a unit
)

func (d *Delay) Validate() error {
	var c check
	c.token("negotiation", d.Negotiation)
	c.token("node", d.Node)
	c.token("incarnation", d.Incarnation)
	c.reason(d.Reason)
	c.amount("seconds", d.Seconds)
	return c.err
}

func (m *Measured) Validate() error {
	var c check
	c.token("negotiation", m.Negotiation)
	c.each(len(m.Measurements), "measurements", func(i int) error { return m.Measurements[i].Validate() })
	return c.err
}

func (p *Preparation) Validate() error {
	var c check
	c.token("negotiation", p.Negotiation)
	c.atLeast("generation", int64(p.Generation), 1)
	return c.err
}

func (p *Promise) Validate() error {
	var c check
	c.token("negotiation", p.Negotiation)
	c.token("node", p.Node)
	return c.err
}

func (s *Schedule) Validate() error {
	var c check
	c.token("negotiation", s.Negotiation)
	c.nested("plan", s.Plan.Validate())
	return c.err
}

func (o *Commitment) Validate() error {
	var c check
	c.token("negotiation", o.Negotiation)
	c.atLeast("generation", int64(o.Generation), 1)
	c.digest("planDigest", o.PlanDigest)
	return c.err
}

func (o *Overdue) Validate() error {
	var c check
	c.token("negotiation", o.Negotiation)
	c.token("phase", o.Phase)
	c.atLeast("round", int64(o.Round), 0)
	return c.err
}

func (a *Abort) Validate() error {
	var c check
	c.token("negotiation", a.Negotiation)
	c.reason(a.Reason)
	return c.err
}

func (h *Hold) Validate() error {
	var c check
	c.reason(h.Reason)
	c.each(len(h.Awaits), "awaits", func(i int) error {
		var c check
		c.token("node", h.Awaits[i])
		return c.err
	})
	return c.err
}

func (f *Failure) Validate() error {
	var c check
	c.token("negotiation", f.Negotiation)
	c.reason(f.Reason)
	c.that(len(f.Givers) <= mostGivers, "givers", fmt.Sprintf("at most %d", mostGivers), len(f.Givers))
	c.each(len(f.Givers), "givers", func(i int) error {
		var c check
		c.token("node", f.Givers[i])
		return c.err
	})
	return c.err
}
