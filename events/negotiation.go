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
	ChangeRestored   = "link-return"   // of a link that had failed
	ChangeBroken     = "broken-step"   // the nodes stay the same
	ChangeMeasured   = "link-measured" // of a node that its links have wait, or whose links have the others wait
)

// Change is one thing that happened or is asked for.
type Change struct {
	Kind  string `json:"kind" is:"one=join|leave|failure|connect-link|disconnect-link|link-failure|link-return|broken-step|link-measured"`
	Node  string `json:"node" is:"token"`
	Peer  string `json:"peer,omitempty"` // the other end, for a link
	Cause string `json:"cause"`          // id of the event that brought it
	// Reason is why a node is to leave, in the words of whoever asked.
	Reason string `json:"reason,omitempty" is:"count=..256"`
	// Institution lists a node that joins, as the signed policy of who may join says; left out where none does.
	Institution string `json:"institution,omitempty" is:"count=..64"`
}

// Opening starts the negotiation of the next generation.
type Opening struct {
	Negotiation string   `json:"negotiation" is:"token"`
	Generation  uint64   `json:"generation" is:"min=1"` // that a commit will have; its parent is the generation before
	Changes     []Change `json:"changes" is:"count=1"`
	Members     []Member `json:"members"` // who is to consent: all who are active, join or leave
	Abandon     bool     `json:"abandon"` // the step under way cannot end: stop now
	Connect     []Pair   `json:"connect"` // links to be opened and measured before consenting
	// Snapshots tells that living nodes may not have all units: members say what they can read of snapshots.
	Snapshots bool `json:"snapshots,omitempty"`
	// Recalls are members that are to tell the plan under which they trained: the log has lost it. Nobody tells what it holds, for
	// another negotiation follows.
	Recalls []string `json:"recalls,omitempty" is:"count=0..8,each=token"`
	// Digests are members that alone hold units which they did not give: they tell the digests of what they hold, as of claims. A claim of the
	// same bytes counts beside it.
	Digests []string `json:"digests,omitempty" is:"count=0..8,each=token"`
	// Stop tells that nobody stays: training stops after a step of which all write a snapshot, and no plan follows.
	Stop bool `json:"stop,omitempty"`
	// Begins tells that training begins at its first step, though there was a plan: members hold what they can make at step 0, as before
	// the first plan.
	Begins bool `json:"begins,omitempty"`
}

// Consent is a member's answer to an opening.
type Consent struct {
	Negotiation string `json:"negotiation" is:"token"`
	Node        string `json:"node" is:"token"`
	Incarnation string `json:"incarnation"`
	Accepted    bool   `json:"accepted"`
	Reason      string `json:"reason,omitempty" is:"reason"`
	// Refuses are the nodes whose joins are not accepted. Nothing else is objected to if they are named.
	Refuses  []string  `json:"refuses,omitempty" is:"count=0..4096,each=token"`
	Step     uint64    `json:"step"` // completed steps
	Holdings []Holding `json:"holdings" is:"count=0..4096"`
	// Claims are what a node holds that was given up while it lived. Each counts only where nobody contradicts it. A member that the opening
	// asks for digests tells so what it holds.
	Claims []Claim `json:"claims,omitempty" is:"count=0..8192"`
	// Trained is the generation of the plan under which the claims were trained.
	Trained uint64 `json:"trained,omitempty"`
	// Snapshots are what the node can read, where the opening asks for them; newest first.
	Snapshots    []Snapshot    `json:"snapshots,omitempty" is:"count=0..16"`
	Measurements []Measurement `json:"measurements,omitempty" is:"count=0..4096"`
	// Tiers are those to which the node writes the snapshot with which training stops, where the opening is that of a stop.
	Tiers []string `json:"tiers,omitempty" is:"count=0..2,each=token"`
	// Plan is that under which the node trained before it asked, where the opening recalls it.
	Plan *Plan `json:"plan,omitempty"`
}

// Holding is layers a node can give, each at the newest step and, kept for a roll-back, possibly at the one before.
type Holding struct {
	Units   Range    `json:"units" is:"units"`
	Steps   []uint64 `json:"steps" is:"count=1..8"` // versions, in completed steps; newest first
	Current bool     `json:"current,omitempty"`     // the version goes with the step the node stops at
}

// Snapshot is units of an older step that a node can read from where they were written.
type Snapshot struct {
	Step uint64 `json:"step"`             // completed steps
	Plan string `json:"plan" is:"digest"` // digest of the plan under which the step was trained: only what has both alike fits together
	// ConsumedSamples is the position in the data, after the step.
	ConsumedSamples uint64  `json:"consumedSamples"`
	Units           []Range `json:"units" is:"count=1..4096,each=units"`
}

// Claim is one unit of state that a node holds from a membership that has ended.
type Claim struct {
	Unit   int    `json:"unit" is:"max=4095"`
	Step   uint64 `json:"step"` // completed steps
	Digest string `json:"digest" is:"digest"`
}

// Delay says that a member lives and will answer an opening or a preparation later.
type Delay struct {
	Negotiation string `json:"negotiation" is:"token"`
	Node        string `json:"node" is:"token"`
	Incarnation string `json:"incarnation" is:"token"`
	Reason      string `json:"reason" is:"reason"` // what it is busy with
	// Seconds is how long that takes at most, where the node knows from its usual step; zero: not known.
	Seconds float64 `json:"seconds,omitempty" is:"min=0,max=1e9"`
}

// Measured lists the links that members measured before they consented, to this negotiation or to one that ended before all had,
// as they are known now.
type Measured struct {
	Negotiation  string        `json:"negotiation" is:"token"`
	Measurements []Measurement `json:"measurements"`
}

// Preparation says that the plan stands and asks each member for a stop step.
type Preparation struct {
	Negotiation string `json:"negotiation" is:"token"`
	Generation  uint64 `json:"generation" is:"min=1"`
}

// Promise is a member's word not to pass a step before the negotiation ends.
type Promise struct {
	Negotiation string `json:"negotiation" is:"token"`
	Node        string `json:"node" is:"token"`
	StopStep    uint64 `json:"stopStep"` // completed steps
}

// Schedule fixes the step at which all stop and the plan takes over. Shards that must move are moved at that step.
type Schedule struct {
	Negotiation string `json:"negotiation" is:"token"`
	StopStep    uint64 `json:"stopStep"` // completed steps; members ahead of it roll back
	Plan        Plan   `json:"plan"`
}

// Commitment says that a negotiation ended with a committed plan.
type Commitment struct {
	Negotiation string `json:"negotiation" is:"token"`
	Generation  uint64 `json:"generation" is:"min=1"`
	PlanDigest  string `json:"planDigest" is:"digest"`
	// LostSteps are completed steps that no node at hand has any more, as far as is known: they are trained again.
	LostSteps uint64 `json:"lostSteps,omitempty"`
	// AtMost says that nobody told how far training had come, and LostSteps is how many could have been made since.
	AtMost bool `json:"atMost,omitempty"`
}

// Abort says that a negotiation ended without a plan. A promise made in it no longer binds.
type Abort struct {
	Negotiation string `json:"negotiation" is:"token"`
	Generation  uint64 `json:"generation"`
	Reason      string `json:"reason" is:"reason"`
	Superseded  bool   `json:"superseded"` // another negotiation follows at once with the same changes and more
}

// Overdue says that somebody waited too long, by the negotiator's clock. The negotiator decides what comes of it when
// it hears it in the log, where every answer that came in time stands before it.
type Overdue struct {
	Negotiation string `json:"negotiation" is:"token"` // "none" where the cluster holds and is to be tried again
	Phase       string `json:"phase" is:"token"`
	Round       int    `json:"round"` // counts within the phase
	// Node is the one whose wait or deadline is over, where the phase is none of a negotiation but joining or leaving. A user's request was
	// heard if the phase is asking. The age of the request decides what comes of it.
	Node string `json:"node,omitempty"`
}

// Hold says that no plan is possible until the world changes.
type Hold struct {
	Reason string `json:"reason" is:"reason"`
	// Awaits are the nodes without which no plan is possible: the last to hold some unit of the state.
	Awaits []string `json:"awaits,omitempty" is:"each=token"`
	// Step is the step that is held, where trainers ended in it one after the other; left out where the cluster holds for anything else.
	Step *HeldStep `json:"step,omitempty"`
}

// OlderLog is how the reason of a hold begins where the log is older than what living nodes trained.
const OlderLog = "the log is an older one"

// Acceptance says that a log counts though it is older than what living nodes trained.
type Acceptance struct {
	Reason string `json:"reason" is:"reason"`
}

// Failure says why a step of a negotiation cannot be done.
type Failure struct {
	Negotiation string `json:"negotiation" is:"token"`
	Reason      string `json:"reason" is:"reason"`
	Node        string `json:"node,omitempty"` // to blame; empty: nobody is
	// Givers are those whose offer the node could not verify: one of them may be wrong instead.
	Givers []string `json:"givers,omitempty" is:"count=0..4096,each=token"`
	// Units are those of which givers offered different bytes: what else they read of a snapshot may be right.
	Units []Range `json:"units,omitempty" is:"count=0..64,each=units"`
}

func (o *Opening) Validate() error { return within(o).err }

func (o *Consent) Validate() error {
	c := within(o)
	c.rule("refuses", len(o.Refuses) == 0 || !o.Accepted, "refuses", "none where the change is accepted", len(o.Refuses))
	for i, holding := range o.Holdings {
		c.ranges(fmt.Sprintf("holdings[%d].units", i), []Range{holding.Units})
	}
	for i, snapshot := range o.Snapshots {
		c.ranges(fmt.Sprintf("snapshots[%d].units", i), snapshot.Units)
	}
	for i, measured := range o.Measurements {
		field := fmt.Sprintf("measurements[%d]", i)
		c.rule("own-links", measured.From == o.Node, field+".from", "the node that consents: it measures its own links", measured.From)
		c.ends(field, measured.From, measured.To)
	}
	return c.err
}

// MostSnapshots bounds those that a consent names: more than any tier keeps.
const MostSnapshots = 16

func (d *Delay) Validate() error { return within(d).err }

func (m *Measured) Validate() error {
	c := within(m)
	c.links("measurements", m.Measurements)
	return c.err
}

func (p *Preparation) Validate() error { return within(p).err }

func (p *Promise) Validate() error { return within(p).err }

func (s *Schedule) Validate() error {
	c := within(s)
	c.nested("plan", s.Plan.rules())
	return c.err
}

func (o *Commitment) Validate() error { return within(o).err }

func (o *Overdue) Validate() error { return within(o).err }

func (a *Abort) Validate() error { return within(a).err }

func (a *Acceptance) Validate() error { return within(a).err }

func (h *Hold) Validate() error { return within(h).err }

func (f *Failure) Validate() error { return within(f).err }
