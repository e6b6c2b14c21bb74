package world

import (
	"cmp"
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/consent"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/tests/simulation/loop"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// node is a host. Processes of the trainer come and go on it.
type node struct {
	name     string
	started  int            // processes, ever
	process  *process       // that the hub reaches by the node's name; nil while none runs
	unnamed  []*process     // that live, and have lost the name to another
	slowness float64        // of its computing; 1 is usual
	reads    float64        // what it measures of its links, over what these carry; 1 is the truth
	storing  time.Duration  // what its state takes to tell, give, take or adopt something, beside what is usual
	kernel   time.Duration  // what its trainer takes to give up a step
	updates  time.Duration  // what its trainer takes to make a step of which it has all sums
	between  bool           // where its trainer hangs, that is between steps
	rests    bool           // its script does nothing, as its agent tells
	rested   time.Duration  // when that began, by the agent; zero: it never did
	breaks   int            // so many-th of the steps that it begins breaks; zero: none
	begun    int            // steps, since some break
	consents consent.Policy // of its next processes
	freezes  bool           // its agent can tell what its trainer holds while that gives up a step
	gone     bool           // it left, and does not come back by itself
	left     *leftover      // what its agent keeps of the last script; nil: nothing, or a script has it
	host     string         // at whose address it is; several names may have one
	silent   events.Kind    // what it does not say; empty: nothing
	site     string         // where it stands; empty: the cluster has no sites
	disk     *tier          // outlives its processes
	lies     *lie           // what is wrong in what it says; nil: nothing
	blurts   events.Kind    // what it says again and again that nothing asked for; empty: nothing
	lied     int            // so often
	earlier  bool           // its next agent is of the earlier build
}

// process is a trainer with its agent: the real machine of the agent inside, and a trainer that holds hash chains.
type process struct {
	*World
	node         *node
	prefix       string // of its incarnations
	asked        uint64 // where the log has the request of this incarnation; zero: it is on its way
	agent        agentMachine
	bus          *loop.Bus
	incarnation  string
	incarnations int
	state        *state
	done         uint64                    // completed steps
	collective   *collective               // the step under way
	updating     *collective               // it has all sums of, and takes long
	began        time.Duration             // when it did
	writing      map[string]bool           // by tier: a snapshot
	facts        map[string][]events.Event // by what they are about: what is being said, and what waits behind it
	reducedIn    []bool                    // by layer: it was updated in this step
	atBoundary   bool
	working      bool           // the trainer does something at the boundary
	work         []agent.Action // to be done at the boundary
	exchange     *exchange
	readers      []*reader
	beat         events.Pulse
	paused       bool
	hung         bool   // the trainer does nothing; its agent does
	back         func() // what a trainer that hangs does first when it runs again
	given        int    // boundaries to which it came from a step that was given up
	dead         bool
	backlog      []func()     // what was due while it was paused
	generation   uint64       // of the plan trained last
	before       uint64       // the world's, as the plan came that was trained last
	life         int          // of that plan
	claimable    uint64       // generation under which the state was trained that it may claim
	plan         *events.Plan // adopted last
	share        share        // of its samples
	unchanged    unchanged
	stands       *leftover // what the last script left; its agent takes part without one. Nil: there is a script
	pulseAgain   func()
	unreadable   map[*part]bool // of snapshots, as it has found
	earlier      bool           // its agent is of the earlier build
}

// launch starts a process of a node, which has nothing but what its agent kept of the last one.
func (n *node) launch(w *World) { n.begin(w, nil) }

func (n *node) begin(w *World, stands *leftover) {
	n.started++
	prefix := fmt.Sprintf("%s-%d-", n.name, n.started)
	p := &process{
		World: w, node: n, prefix: prefix, state: newState(w.job), stands: stands,
		reducedIn: make([]bool, len(w.job.Layers)), writing: map[string]bool{}, facts: map[string][]events.Event{}, atBoundary: true,
		agent: w.agentOf(n, w.agentSettings(n, prefix, stands)), earlier: n.earlier, bus: loop.Connect(w.hub.Server, cluster, w.hub.apart),
	}
	p.inherit(n.left)
	n.left = nil
	p.pulseAgain = p.awake(func() { p.pulse() })
	for _, kind := range p.agent.Hears() {
		w.agentsHear[kind] = true
	}
	for _, s := range []*stream.Stream{w.hub.Events, w.hub.Plans} {
		p.readers = append(p.readers, &reader{process: p, follower: s.Follow(p.subjects(), w.hub.heard[s])})
	}
	w.tell(n.name, "starts")
	p.recallComplete()
	p.join(false)
	p.do(p.agent.Boundary(0))
	p.pulse()
	p.blurt(n.blurts)
}

func (p *process) join(back bool) {
	p.takeName()
	p.incarnations++
	p.claimable = max(p.claimable, p.agent.Snapshot().Generation)
	p.incarnation, p.asked = fmt.Sprint(p.prefix, p.incarnations), 0
	p.do(p.agent.Join(p.time(), p.incarnation, back))
}

// later does something after a while, if the process lives; once it runs again, if it is paused.
func (p *process) later(wait time.Duration, do func()) { p.after(wait, p.awake(do)) }

func (p *process) awake(do func()) func() {
	return func() {
		switch {
		case p.dead:
		case p.paused:
			p.backlog = append(p.backlog, do)
		default:
			do()
		}
	}
}

// do does what the agent's machine wants, in order.
func (p *process) do(actions []agent.Action) {
	for _, action := range actions {
		switch a := action.(type) {
		case agent.Say:
			p.say(a.Event)
		case agent.Abandon:
			p.abandon(a.Within)
		case agent.Stuck:
			p.after(0, p.restart)
		case agent.Waits:
			p.tell(p.node.name, "waits since %s: %s", a.Since.Format(time.TimeOnly), a.Reason)
		case agent.Late:
			p.tell(p.node.name, "hears that it cannot leave in time: %s", a.Reason)
		case agent.Awaited:
			p.tell(p.node.name, "hears that the others wait for it: %s", a.Reason)
		case agent.Stays:
		case agent.Leaving: // a script may ask what it is told; this trainer trains on until its agent ends
		case agent.Rejoin:
			replaced := p.isReplaced()
			if replaced {
				p.do(p.agent.Replaced())
			}
			if !p.dead {
				p.tell(p.node.name, "joins again: %s", a.Reason)
				p.join(replaced)
			}
		case agent.Look:
			p.look()
		case agent.Reread:
			p.reread(a.Generation)
		case agent.End:
			p.tell(p.node.name, "ends: %s", cmp.Or(a.Reason, "it has left"))
			if p.stands != nil {
				p.standsNoLonger(a)
				return
			}
			p.node.gone = a.Left
			if a.Left {
				p.beat.Left = true
				p.pulse()
			}
			if a.Left || a.Complete || a.Refused || p.ended || p.isOutdone() {
				p.end()
			} else {
				p.discarding("ends", p.end)
			}
			return
		case agent.Measure:
			p.measure(a)
		case agent.Open:
			p.open(a.Exchange)
		case agent.Close:
			p.close(a.Negotiation)
		case agent.PreCopy:
			p.preCopy(a)
		case agent.Fetch:
			p.fetch(a)
		default:
			p.work = append(p.work, a)
		}
	}
	p.workOn()
}

// tellsSoon is how long a trainer may take to tell what its state holds until its agent says that its consent comes later.
const tellsSoon = 2 * time.Second

// workOn does the next thing that is to be done at the boundary, if the trainer stands there.
func (p *process) workOn() {
	if p.hung || !p.atBoundary || p.working || len(p.work) == 0 || p.dead {
		return
	}
	next := p.work[0]
	p.work = p.work[1:]
	if train, ok := next.(agent.Train); ok && p.stands != nil {
		p.cannotTrain()
		return
	} else if ok {
		p.train(train)
		return
	}
	p.working = true
	if _, tells := next.(agent.Tell); tells && p.node.storing > tellsSoon {
		p.later(tellsSoon, func() { p.do(p.agent.Late()) })
	}
	p.later(p.node.storing+p.jitter(5*time.Millisecond), func() {
		p.working = false
		p.stateWork(next)
	})
}

// stateWork does what touches the trainer's state.
func (p *process) stateWork(action agent.Action) {
	switch a := action.(type) {
	case agent.Forget:
		p.state.forget()
		p.claimable = 0
		p.workOn()
	case agent.Capture:
		p.capture(a)
	case agent.Tell:
		p.do(p.agent.Done(p.told(a)))
	case agent.Export:
		p.do(p.agent.Done(p.export(a)))
	case agent.Adopt:
		p.do(p.agent.Done(p.adopt(a)))
	case imported:
		p.do(p.agent.Done(p.take(a)))
	}
}

func (p *process) told(tell agent.Tell) agent.Result {
	told := agent.Told{Task: tell.Task}
	if tell.Snapshots {
		told.Snapshots = p.node.listed(p.bucket, tell.Complete)
	}
	if told.Holdings = p.state.holdings(); !tell.Claims {
		return told
	}
	for _, holding := range told.Holdings {
		for unit := holding.Units.First; unit < holding.Units.End; unit++ {
			for _, step := range holding.Steps {
				found, _ := p.state.find(unit, step)
				told.Claims = append(told.Claims, events.Claim{Unit: unit, Step: step, Digest: digestOf(found.value)})
			}
		}
	}
	return told
}

func (p *process) adopt(adopt agent.Adopt) agent.Result {
	if p.stands != nil {
		return p.adoptsNothing(adopt)
	}
	var err error
	p.discarding("adopts", func() { err = p.state.adopt(adopt.Units, adopt.Step) })
	if err != nil {
		if p.node.lies == nil { // or it was taken at its word
			p.violation("%s cannot adopt: %v", p.node.name, err)
		}
		return agent.Failed{Task: adopt.Task, Reason: err.Error()}
	}
	p.done = adopt.Step
	return agent.Adopted{Task: adopt.Task}
}

// train begins a step.
func (p *process) train(train agent.Train) {
	p.checkTrain(train)
	if train.Plan != p.plan {
		p.before, p.life = p.World.before, p.lifeOf(train.Plan)
	}
	p.plan, p.generation = train.Plan, train.Plan.Generation
	p.takeUp(train)
	if p.atBoundary = p.madeLast(); p.atBoundary {
		p.endAgain()
		return
	}
	clear(p.reducedIn)
	p.collective, p.began = p.collectiveOf(train.Plan, p.done), p.now
	p.collective.begin(p)
	p.dies()
	if p.node.begun++; p.node.breaks > 0 && p.node.begun%p.node.breaks == 0 {
		p.later(breaking, func() { p.World.breakStep(p.node) })
	}
}

// reduced updates layers in the step under way, unless that was done.
func (p *process) reduced(c *collective, layers events.Range) {
	for layer := layers.First; layer < layers.End; layer++ {
		if p.collective != c || p.reducedIn[layer] {
			continue
		}
		p.reducedIn[layer] = true
		for unit := layer; unit < len(p.state.trained); unit += len(p.reducedIn) {
			if p.state.trained[unit] {
				p.state.advance(unit, p.life)
			}
		}
	}
}

func (p *process) has(c *collective, layers events.Range) bool {
	return p.collective == c && p.reducedIn[layers.First]
}

// stepped ends the step under way.
func (p *process) stepped() {
	p.collective, p.atBoundary = nil, true
	p.done++
	p.discarding("completes a step", func() { p.state.completed(p.done) })
	p.completed(p)
	p.beat.Step, p.beat.StepSeconds = p.done, (p.now - p.began).Seconds()
	p.do(p.agent.Completed(p.time(), p.done, 0.1))
	p.tellDigests()
	p.do(p.agent.Boundary(p.done))
}

// kill ends the process as kill -9 does: its connections are reset.
func (p *process) kill() {
	p.end()
	p.resetPeers(p.node)
}

// resetPeers has those who train with a node tell that their connections to it were reset.
func (w *World) resetPeers(n *node) {
	for _, other := range w.nodes {
		peer := other.process
		if other == n || peer == nil || peer.collective == nil || !w.direct(n.name, other.name) {
			continue
		}
		if _, placed := peer.collective.plan.Holds(n.name); placed {
			peer.later(w.latency(), func() {
				peer.pulse(events.Suspicion{Node: n.name, Refused: true, Reason: "connection reset"})
			})
		}
	}
}

func (p *process) end() {
	for unit := range p.state.kept {
		if p.healthy(unit) {
			p.lastHeld[unit] = p.now
		}
	}
	p.dead = true
	p.haltLast()
	if p.collective != nil {
		p.collective.leave(p)
	}
	p.loseName()
}

func (p *process) resume() {
	p.paused = false
	due := p.backlog
	p.backlog = nil
	for _, do := range due {
		p.later(0, do)
	}
	p.catchUp()
}

// catchUp takes what came for the step under way while the trainer did not run.
func (p *process) catchUp() {
	if c := p.collective; c != nil && !p.stopped() {
		c.resumed(p)
	}
}
