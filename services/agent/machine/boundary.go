package machine

import "fmt"

// trainer is where the training loop is.
type trainer int

const (
	absent     trainer = iota // it has not come to its first boundary
	training                  // a step is under way
	abandoning                // it was told to give up the step
	standing                  // it is at a boundary
)

var trainerNames = [...]string{"absent", "training", "abandoning", "standing"}

func (t trainer) String() string { return trainerNames[t] }

// asked is what the trainer's state is at: Tell, for a negotiation, or Adopt, for the first pending plan.
type asked struct {
	task        Task
	negotiation string // empty for Adopt
	what        string // it is at, in words
}

// Boundary tells that the trainer stands at a boundary, at the start or after a step that was completed or
// abandoned, with so many completed steps. Train follows, at once or once the node may go on.
func (m *Machine) Boundary(done uint64) []Action {
	if m.membership == over {
		return nil
	}
	m.done, m.trainer = done, standing
	m.slow, m.hung, m.away, m.frozen = false, false, false, nil
	m.captureDue()
	m.beginPreCopy() // which needs the trainer's state
	return m.act()
}

// Capturing tells whether the trainer's state gives units to those who pre-copy, at a boundary. It may take minutes.
func (m *Machine) Capturing(begun bool) { m.capturing = begun }

// settle has the trainer that stands at its boundary do what is due, one thing after the other.
func (m *Machine) settle() {
	for m.trainer == standing && m.asked == nil && m.membership != outside && m.membership != over {
		if !m.next() {
			return
		}
	}
}

// next does the first thing that is due, and reports whether another one may be.
func (m *Machine) next() bool {
	switch {
	case m.membership == givenUp:
		m.membership = outside
		m.do(Rejoin{m.reason})
		return false
	case m.membership == leaving && m.ahead() == nil:
		m.end(End{Left: true})
		return false
	}
	m.passOver()
	switch {
	case m.mayAdopt():
		m.adopt()
	case m.mustTell():
		m.tell()
	case m.mayMove():
		m.move()
	case m.mustWriteLast():
		m.writeLast()
	case m.mustWait():
		return false
	default:
		m.train()
	}
	return true
}

// passOver skips a plan whose step this node will never reach, because a failure holds it before: the state stays
// as it is, and the next plan builds on what each node then says it holds.
func (m *Machine) passOver() {
	for len(m.pending) > 0 && m.plan != nil {
		next := m.pending[0]
		if next.plan.Generation >= m.awaited || next.plan.ResumeStep == m.done || !m.named(next.plan.Nodes) {
			return
		}
		m.plan, m.trained, m.claimable, m.pending = &next, &next, next.plan.Generation, m.pending[1:]
	}
}

// mayAdopt reports whether the next plan takes over here: at its step, or where nothing is trained anyway.
func (m *Machine) mayAdopt() bool {
	if len(m.pending) == 0 {
		return false
	}
	next := m.pending[0].plan
	endsWait := m.awaited > 0 && (next.Generation >= m.awaited || !m.named(next.Nodes))
	return endsWait || next.ResumeStep == m.done || m.idle()
}

// adopt has the trainer's state take up the next plan. A node that it leaves out has left, or was given up while it
// lived.
func (m *Machine) adopt() {
	next := m.pending[0].plan
	switch {
	case m.named(next.Nodes):
		m.ask(Adopt{Task: m.task(), Units: next.UnitsOf(m.settings.Node), Step: next.ResumeStep},
			fmt.Sprintf("it adopts plan %d", next.Generation))
	case m.membership == leaving:
		m.end(End{Left: true})
	default:
		m.giveUp(fmt.Sprintf("plan %d leaves it out", next.Generation))
	}
}

// ask gives the trainer's state a task, before whose result nothing else is due.
func (m *Machine) ask(action Action, what string) {
	m.asked = &asked{task: m.last, what: what}
	if _, tells := action.(Tell); tells {
		m.asked.negotiation = m.negotiation.opening.payload.Negotiation
	}
	m.do(action)
}

// answered takes the result of the task that the trainer's state was at.
func (m *Machine) answered(task Task) (asked, bool) {
	if m.asked == nil || m.asked.task != task {
		return asked{}, false
	}
	answered := *m.asked
	m.asked = nil
	return answered, true
}

// adopted switches to the plan that the trainer's state has taken up.
func (m *Machine) adopted(result Adopted) {
	if _, current := m.answered(result.Task); !current {
		return
	}
	next := m.pending[0]
	m.takeStock(next.plan)
	m.plan, m.trained, m.pending = &next, &next, m.pending[1:]
	m.done, m.switched, m.stuck, m.claimable = next.plan.ResumeStep, true, false, next.plan.Generation
	m.tookBack = false
	if m.done < m.diverged { // what is trained from here was finite
		m.diverged = 0
	}
	m.pace.pending = next.plan.Generation
	clear(m.imported)
	if m.negotiation == nil {
		m.promise = nil // it was kept
	}
	if next.plan.Generation >= m.awaited {
		m.awaited = 0
	}
	m.noticeThatTrainingGoesOn()
	if m.membership == joining {
		m.membership = member
		if m.leave != nil { // it was given up after it had asked to go
			m.sayLeave()
		}
	}
}

// mustTell reports whether an opening that abandons the step waits for what this node holds.
func (m *Machine) mustTell() bool {
	return m.negotiation != nil && m.negotiation.opening.payload.Abandon && m.negotiation.phase == opened
}

// mustWait reports whether no step may be begun: there is no plan, or no place in it, or the step broke, or the node
// has promised to stop here, or training is complete. (A node that was given other units after the last step has to
// tell their digests.)
func (m *Machine) mustWait() bool {
	if m.awaited > 0 || m.stuck || m.idle() || m.finished() && !m.switched {
		return true
	}
	stop := m.stop()
	return stop != nil && m.done >= *stop
}

// stop returns the step, in completed ones, at which training stops or the next plan takes over; nil where none is known.
func (m *Machine) stop() *uint64 {
	switch {
	case len(m.pending) > 0:
		return &m.pending[0].plan.ResumeStep
	case m.negotiation != nil && m.negotiation.schedule != nil:
		return &m.negotiation.schedule.payload.StopStep
	}
	return m.promise
}

// idle reports whether the plan taken up gives the node nothing to train.
func (m *Machine) idle() bool { return m.plan == nil || !m.plan.placed }

func (m *Machine) train() {
	m.noticeThatTrainingGoesOn()
	m.do(Train{Plan: m.plan.plan, Digest: m.plan.digest, Switched: m.switched, Abandoned: m.abandoned})
	m.trainer, m.switched, m.abandoned = training, false, false
}

// step returns how many steps are completed: while the trainer's state adopts a plan, as many as the plan resumes at.
// It is zero for an incarnation without a plan: its earlier training is over.
func (m *Machine) step() uint64 {
	switch {
	case m.asked != nil && m.asked.negotiation == "":
		return m.pending[0].plan.ResumeStep
	case m.plan == nil:
		return 0
	}
	return m.done
}
