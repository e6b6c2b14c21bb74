package events

import "fmt"

// Pulse is a heartbeat, over core NATS on PulseSubject: not an event, never stored. Only changes become facts.
type Pulse struct {
	Node        string  `json:"node"`
	Incarnation string  `json:"incarnation"`
	Number      uint64  `json:"number"` // counts up within an incarnation
	Generation  uint64  `json:"generation"`
	Step        uint64  `json:"step"`        // completed steps
	StepSeconds float64 `json:"stepSeconds"` // of the last completed step
	Loss        float64 `json:"loss"`        // of the last completed step; zero where the node does not know it
	// Phase is what the trainer does in the step after that: PhaseComputing or PhaseWaiting, for others; empty where it
	// is in none, or its agent does not know. PhaseStarting: it has not asked for a place yet, and is about to.
	Phase      string      `json:"phase,omitempty"`
	Suspicions []Suspicion `json:"suspicions,omitempty"`
	Left       bool        `json:"left,omitempty"` // the node has left and ends: its silence is no failure
}

// MostSuspicions is how many one heartbeat may tell.
const MostSuspicions = 64

// The phases of a trainer: before it asks for a place, and in a step.
const (
	PhaseStarting  = "starting"
	PhaseComputing = "computing"
	PhaseWaiting   = "waiting"
)

// Suspicion is a node's report that a peer does not answer on the data plane.
type Suspicion struct {
	Node    string `json:"node"`
	Refused bool   `json:"refused"` // the connection was reset or refused, rather than silent
	Reason  string `json:"reason"`
}

// NodeState says that a node is suspected, cleared or lost.
type NodeState struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Reason      string `json:"reason"`
	// Proven says that the process is gone for certain, as the agent beside it saw: what it held does not come back.
	Proven bool `json:"proven,omitempty"`
	// Step is how many steps the node had completed by its last heartbeat; zero: not known.
	Step uint64 `json:"step,omitempty"`
	// SilentSeconds is how long nothing had been heard from the node.
	SilentSeconds float64 `json:"silentSeconds"`
	// WaitedSeconds is for how long others had waited for the node's trainer, which hangs.
	WaitedSeconds float64 `json:"waitedSeconds,omitempty"`
	// FailuresPerNodeSecond is the failure rate seen so far, prior included.
	FailuresPerNodeSecond float64 `json:"failuresPerNodeSecond"`
	// SecondsUntilReturn is how long lost nodes took to come back on average; zero: none has come back yet.
	SecondsUntilReturn float64 `json:"secondsUntilReturn,omitempty"`
}

// Exit says that the process which a node trains with is gone, or hangs. The agent that was its parent, or held its
// socket, lives on to say so: that is proof, and no peer has to miss the node.
type Exit struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Generation  uint64 `json:"generation"` // of the plan that it worked under; zero for none
	Reason      string `json:"reason"`
	ExitCode    *int   `json:"exitCode,omitempty"` // left out where the process did not end by itself
	// Expected says that the node had asked to leave, or training was complete: its end is no failure.
	Expected bool `json:"expected,omitempty"`
	// Hangs tells that the process lives, though its step does not end: the others go on without it, and it may still
	// bring back what it holds.
	Hangs bool `json:"hangs,omitempty"`
}

// What becomes of a connection to a node that does not answer.
const (
	FoundRefused     = "refused"     // the host lives, and no process listens
	FoundStalled     = "stalled"     // it was accepted, and nobody answers
	FoundUnreachable = "unreachable" // it did not come about in time
)

// SiteState says that most nodes of a site are silent at once, or that they are not any more.
type SiteState struct {
	Site   string `json:"site"`
	Silent int    `json:"silent"` // nodes of the site
	Nodes  int    `json:"nodes"`  // that are watched there
}

// Profile is what a node measured while training.
type Profile struct {
	Node string `json:"node"`
	// SpeedFactor is measured over declared speed of the node's layers: 2 means twice as fast as the job says.
	SpeedFactor float64 `json:"speedFactor"`
	Step        uint64  `json:"step"`
}

// Probe is a request on ProbeSubject. Without a target it asks the agent for a sign of life; with one it asks the
// agent to measure the link to the target.
type Probe struct {
	Target  string `json:"target,omitempty"`
	Address string `json:"address,omitempty"` // data-plane address of the target
	Bytes   int    `json:"bytes,omitempty"`   // to send for the bandwidth; zero measures the round trip only
}

// ProbeAnswer is the reply to a probe.
type ProbeAnswer struct {
	Node        string       `json:"node"`
	Incarnation string       `json:"incarnation"`
	Measured    *Measurement `json:"measured,omitempty"`
	Error       string       `json:"error,omitempty"` // the target did not answer
	// Finding is what became of the connection to a target that did not answer: FoundRefused, FoundStalled or
	// FoundUnreachable; empty where the agent does not know.
	Finding string `json:"finding,omitempty"`
}

func (p *Pulse) Validate() error {
	var c check
	c.token("node", p.Node)
	c.token("incarnation", p.Incarnation)
	c.amount("stepSeconds", p.StepSeconds)
	c.that(len(p.Suspicions) <= MostSuspicions, "suspicions", fmt.Sprintf("at most %d", MostSuspicions), len(p.Suspicions))
	known := p.Phase == "" || p.Phase == PhaseStarting || p.Phase == PhaseComputing || p.Phase == PhaseWaiting
	c.that(known, "phase", "starting, computing, waiting or nothing", p.Phase)
	c.each(len(p.Suspicions), "suspicions", func(i int) error {
		var c check
		c.token("node", p.Suspicions[i].Node)
		c.reason(p.Suspicions[i].Reason)
		return c.err
	})
	return c.err
}

func (s *NodeState) Validate() error {
	var c check
	c.token("node", s.Node)
	c.token("incarnation", s.Incarnation)
	c.reason(s.Reason)
	c.amount("silentSeconds", s.SilentSeconds)
	c.amount("waitedSeconds", s.WaitedSeconds)
	c.amount("failuresPerNodeSecond", s.FailuresPerNodeSecond)
	c.amount("secondsUntilReturn", s.SecondsUntilReturn)
	return c.err
}

func (s *SiteState) Validate() error {
	var c check
	c.token("site", s.Site)
	c.that(s.Silent >= 0 && s.Silent <= s.Nodes, "silent", fmt.Sprintf("0 to %d", s.Nodes), s.Silent)
	return c.err
}

func (e *Exit) Validate() error {
	var c check
	c.token("node", e.Node)
	c.token("incarnation", e.Incarnation)
	c.reason(e.Reason)
	return c.err
}

func (p *Profile) Validate() error {
	var c check
	c.token("node", p.Node)
	c.that(p.SpeedFactor >= 1e-9 && p.SpeedFactor <= 1e9, "speedFactor", "1e-9 to 1e9", p.SpeedFactor)
	return c.err
}
