package events

import "fmt"

// Pulse is a heartbeat, over core NATS on PulseSubject: not an event, never stored. Only changes become facts.
type Pulse struct {
	Node        string  `json:"node" is:"token"`
	Incarnation string  `json:"incarnation" is:"token"`
	Number      uint64  `json:"number"` // counts up within an incarnation
	Generation  uint64  `json:"generation"`
	Step        uint64  `json:"step"`                           // completed steps
	StepSeconds float64 `json:"stepSeconds" is:"min=0,max=1e9"` // of the last completed step
	Loss        float64 `json:"loss"`                           // of the last completed step; zero where the node does not know it
	// LossNotFinite says that the loss of the last completed step is no number or infinite; Loss is zero then. Training has diverged.
	LossNotFinite bool `json:"lossNotFinite,omitempty"`
	// LossNotFiniteSince is the first step of those in a row whose loss is not finite, as far as this node knows, in completed ones.
	// Since then no snapshot is taken.
	LossNotFiniteSince uint64 `json:"lossNotFiniteSince,omitempty"`
	// StillSeconds is for how long the trainer has completed no step under its plan; left out where nobody knows of its steps.
	StillSeconds float64 `json:"stillSeconds,omitempty" is:"min=0,max=1e9"`
	// PaceSeconds is how long it takes from one completed step to the next under the plan, on average of the last ones: with what the
	// script does between steps. Left out before two were completed.
	PaceSeconds float64 `json:"paceSeconds,omitempty" is:"min=0,max=1e9"`
	// Phase is what the trainer does in the step after that: computing, or waiting for others; left out where it is in none, or its
	// agent does not know. Starting: it has not asked for a place yet, and is about to.
	Phase string `json:"phase,omitempty" is:"one=starting|computing|waiting"`
	// Between tells that the trainer was told to train that step, and neither computes nor waits in it: its script has not begun, or does
	// something else beside it or behind its commit.
	Between bool `json:"between,omitempty"`
	// Script is why a script that knows nothing of its agent (--unchanged) does not get on; left out where nothing tells against it.
	Script     *Script     `json:"script,omitempty"`
	Suspicions []Suspicion `json:"suspicions,omitempty" is:"count=0..64"`
	Left       bool        `json:"left,omitempty"` // the node has left and ends: its silence is no failure
}

// MostSuspicions is how many one heartbeat may tell.
const MostSuspicions = 64

// The phases of a trainer: before it asks for a place, and in a step. Heartbeats tell PhaseBetween by a field of its own, for a
// monitor of a build before would refuse the word.
const (
	PhaseStarting  = "starting"
	PhaseComputing = "computing"
	PhaseWaiting   = "waiting"
	PhaseBetween   = "between"
)

// Script is what an agent sees of a script that knows nothing of it, and tells no steps.
type Script struct {
	// Awaits are nodes without a place whose agents answer, and whose scripts may still write: this node's starts once theirs have ended.
	Awaits []string `json:"awaits,omitempty" is:"count=0..16,each=token"`
	// UntilSeconds is for how long that takes at most.
	UntilSeconds float64 `json:"untilSeconds,omitempty" is:"min=0,max=1e9"`
	// RestsSeconds is for how long its processes have neither used a processor nor written, where that is longer than usual.
	RestsSeconds float64 `json:"restsSeconds,omitempty" is:"min=0,max=1e9"`
	// UsualSeconds is how long the longest such rest was that ended by itself.
	UsualSeconds float64 `json:"usualSeconds,omitempty" is:"min=0,max=1e9"`
	// Pid is the process of a script that rests, on its machine.
	Pid int `json:"pid,omitempty" is:"min=0"`
	// Stopped tells that a signal or a debugger has stopped that process: the script hangs, and waits for none of the others.
	Stopped bool `json:"stopped,omitempty"`
}

// MostAwaited is how many nodes a script's agent names.
const MostAwaited = 16

// Suspicion is a node's report that a peer does not answer on the data plane.
type Suspicion struct {
	Node    string `json:"node" is:"token"`
	Refused bool   `json:"refused"` // the connection was reset or refused, rather than silent
	Reason  string `json:"reason" is:"reason"`
}

// NodeState says that a node is suspected, cleared or lost.
type NodeState struct {
	Node        string `json:"node" is:"token"`
	Incarnation string `json:"incarnation" is:"token"`
	Reason      string `json:"reason" is:"reason"`
	// Proven says that the process is gone for certain, as the agent beside it saw: what it held does not come back.
	Proven bool `json:"proven,omitempty"`
	// Step is how many steps the node had completed by its last heartbeat; zero: not known.
	Step uint64 `json:"step,omitempty"`
	// SilentSeconds is how long nothing had been heard from the node.
	SilentSeconds float64 `json:"silentSeconds" is:"min=0,max=1e9"`
	// WaitedSeconds is for how long others had waited for the node's trainer, which hangs.
	WaitedSeconds float64 `json:"waitedSeconds,omitempty" is:"min=0,max=1e9"`
	// FailuresPerNodeSecond is the failure rate seen so far, prior included.
	FailuresPerNodeSecond float64 `json:"failuresPerNodeSecond" is:"min=0,max=1e9"`
	// SecondsUntilReturn is how long lost nodes took to come back on average; zero: none has come back yet.
	SecondsUntilReturn float64 `json:"secondsUntilReturn,omitempty" is:"min=0,max=1e9"`
}

// Exit says that the process which a node trains with is gone, or hangs. The agent that was its parent, or held its
// socket, lives on to say so: that is proof, and no peer has to miss the node.
type Exit struct {
	Node        string `json:"node" is:"token"`
	Incarnation string `json:"incarnation" is:"token"`
	Generation  uint64 `json:"generation"` // of the plan that it worked under; zero for none
	Reason      string `json:"reason" is:"reason"`
	// ExitCode is 128 and the signal where a fault of its own raised one, and left out where the process did not end by itself.
	ExitCode *int `json:"exitCode,omitempty" is:"min=-2147483648"`
	// Step is told where the process ended by a fault of its own in a step, before that was made: the one after so many completed ones.
	Step *uint64 `json:"step,omitempty"`
	// Expected says that the node had asked to leave, or training was complete: its end is no failure.
	Expected bool `json:"expected,omitempty"`
	// Hangs tells that the process lives, though its step does not end: the others go on without it, and it may still
	// bring back what it holds.
	Hangs bool `json:"hangs,omitempty"`
	// Keeps tells that the agent keeps the state that the process left, for others and for the process that it starts next: what the
	// node held may come back.
	Keeps bool `json:"keeps,omitempty"`
	// WaitedSeconds is for how long the process had done nothing by then, where it was stopped or hung; left out where it ended.
	WaitedSeconds float64 `json:"waitedSeconds,omitempty" is:"min=0,max=1e9"`
}

// The outcomes of a connection to a node that does not answer.
const (
	FoundRefused     = "refused"     // the host lives, and no process listens
	FoundStalled     = "stalled"     // it was accepted, and nobody answers
	FoundUnreachable = "unreachable" // it did not come about in time
)

// SiteState says that most nodes of a site are silent at once, or that they are not any more.
type SiteState struct {
	Site   string `json:"site" is:"token"`
	Silent int    `json:"silent"` // nodes of the site
	Nodes  int    `json:"nodes"`  // that are watched there
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
	Node        string       `json:"node" is:"token"`
	Incarnation string       `json:"incarnation"`
	Measured    *Measurement `json:"measured,omitempty"`
	Error       string       `json:"error,omitempty"` // the target did not answer
	// Finding is what became of the connection to a target that did not answer: refused, the host lives and no process
	// listens; stalled, it was accepted and nobody answers; unreachable, it did not come about in time. Left out where the agent does not
	// know.
	Finding string `json:"finding,omitempty" is:"one=refused|stalled|unreachable"`
}

func (p *Pulse) Validate() error { return within(p).err }

func (a *ProbeAnswer) Validate() error {
	c := within(a)
	if a.Measured != nil {
		c.ends("measured", a.Measured.From, a.Measured.To)
	}
	return c.err
}

func (s *NodeState) Validate() error { return within(s).err }

func (s *SiteState) Validate() error {
	c := within(s)
	c.rule("silent", s.Silent <= s.Nodes, "silent", fmt.Sprintf("0 to %d", s.Nodes), s.Silent)
	return c.err
}

func (e *Exit) Validate() error { return within(e).err }
