package machine

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

// A step that cannot end is given up: because the trainer tells that it broke, or because the cluster says so. A
// trainer may be in a step that it cannot interrupt. How long that is waited for follows from how long its steps
// take.
const (
	patientSteps  = 3
	patientPauses = 2                // of the longest so far: every so many steps a trainer may evaluate or write a file
	leastPatience = 30 * time.Second // before any such pause was seen
	firstPatience = 10 * time.Minute // a first step may compile
)

// Broken tells that the step under way cannot end, though the trainer was not told to give it up. Boundary follows,
// after which nothing is trained before a plan for which all give up theirs. A step that is to be given up anyway need
// not be told of.
func (m *Machine) Broken(now time.Time, reason string) []Action {
	if m.trainer != training {
		return nil
	}
	return m.sayBroken(now, &events.BrokenStep{Reason: reason})
}

// Disputed tells that the step under way is not made because trainers would apply different things: which nodes are outvoted, or
// that no side is the majority, where none is. Each one's word counts, so it is told though the step is to be given up.
func (m *Machine) Disputed(now time.Time, reason string, outvoted []string) []Action {
	if m.trainer != training && m.trainer != abandoning {
		return nil
	}
	return m.sayBroken(now, &events.BrokenStep{Reason: reason, Outvoted: outvoted, Tied: len(outvoted) == 0})
}

func (m *Machine) sayBroken(now time.Time, broken *events.BrokenStep) []Action {
	if m.membership == over || m.stuck {
		return nil
	}
	m.stuck = m.trainer == training // who is told to give its step up goes on by the plan that follows that
	broken.Node, broken.Incarnation, broken.Generation, broken.Step = m.settings.Node, m.incarnation, m.generation(), m.done
	m.do(Say{m.speaker.First(now, fmt.Sprintf("%s-%d-%d", m.incarnation, m.generation(), m.done), events.StepBroken, m.settings.Node, broken)})
	return m.act()
}

// patience is how long a trainer may take to come to its boundary once it is told to.
func (m *Machine) patience() time.Duration {
	usual := m.pace.usual()
	if usual == 0 {
		return firstPatience
	}
	seconds := max(patientSteps*usual, patientPauses*m.pace.longest)
	return max(leastPatience, time.Duration(seconds*float64(time.Second)))
}

// Frozen tells what the trainer holds until it comes to its boundary, while it gives up its step: it completes none
// before. So the node consents though its trainer is busy.
func (m *Machine) Frozen(holdings []events.Holding) []Action {
	if m.trainer == abandoning {
		m.frozen = holdings
		m.vouch()
	}
	return m.act()
}

// vouch answers an opening that abandons the step in the name of a trainer that is still in it. An opening that asks
// for snapshots, too, waits for the boundary: another went before it.
func (m *Machine) vouch() {
	asked := m.negotiation != nil && m.readsSnapshots(m.negotiation.opening.payload)
	if m.frozen != nil && m.trainer == abandoning && m.plan != nil && m.mustTell() && !asked {
		m.consent(events.Consent{Accepted: true, Holdings: m.countedOf(m.frozen)})
	}
}

// inStep reports whether the trainer is in the step that it is to give up.
func (m *Machine) inStep() bool { return m.trainer == abandoning && !m.capturing }

// Late tells that the trainer gives up its step, or that its state has been at its task, for longer than others like to
// wait.
func (m *Machine) Late() []Action {
	m.slow = m.trainer == abandoning
	if m.mustTell() {
		m.sayDelayed(m.busy())
	}
	return m.act()
}

// stepDelayed hears that the others wait for this node in their step. By its own word its script rests, which its agent has logged.
func (m *Machine) stepDelayed(_ events.Event, delay events.StepDelay) {
	isOurs := delay.Node == m.settings.Node && delay.Incarnation == m.incarnation && delay.Generation == m.generation()
	if isOurs && delay.By != delay.Node && m.trainer == training {
		m.do(Awaited{Step: delay.Step, Reason: delay.Reason})
	}
}

// Hung tells that the trainer has not given up its step within the time of Abandon. The others go on without it, if they
// do not already or have completed the job. Should it come to its boundary after all, it asks for a place again and claims
// what it holds.
func (m *Machine) Hung(now time.Time) []Action {
	switch {
	case !m.inStep() || m.away || m.membership == over && !m.jobComplete:
		return m.act()
	case m.membership != givenUp && m.membership != over:
		reason := fmt.Sprintf("the step that it was to give up has not ended for %v", m.patience())
		m.sayExited(now, events.Exit{Reason: reason, Hangs: true, WaitedSeconds: m.patience().Seconds()})
		m.giveUp(reason)
	}
	m.hung = true
	m.letGo()
	return m.act()
}

// AwayAfter is how long a trainer that is to give up a step which it has made may do something else before the others go on
// without it: three usual steps and 2 s, within which a hang is found, too.
func (m *Machine) AwayAfter() time.Duration {
	return awaySlack + time.Duration(patientSteps*m.pace.usual()*float64(time.Second))
}

const awaySlack = 2 * time.Second

// Away tells that the trainer is to give up a step which it has made: its script evaluates, saves or hangs behind it. The others
// need not wait for that, and what it holds is whole. So they go on without it, and it asks for a place again once it is back.
func (m *Machine) Away(now time.Time) []Action {
	if m.inStep() && m.membership != givenUp && m.membership != over {
		m.away = true
		reason := fmt.Sprintf("its script has made step %d, and has been doing something else for %v", m.done+1, m.AwayAfter())
		m.sayExited(now, events.Exit{Reason: reason, Hangs: true, Keeps: true, WaitedSeconds: m.AwayAfter().Seconds()})
		m.giveUp(reason)
	}
	return m.act()
}

// letGo has a trainer that hangs ended, once a plan does without what it holds or the job is complete. Until then it may be
// the last to hold it, and the others wait for it.
func (m *Machine) letGo() {
	if m.hung && (m.replaced || m.jobComplete) && m.inStep() {
		m.hung = false
		m.do(Stuck{})
	}
}

// Stood tells for how many seconds the trainer's process has done nothing, which Exited or Failed is about to end for that.
func (m *Machine) Stood(seconds float64) { m.stood = seconds }

// Exited tells that the trainer's process is gone, with its exit code, or a negative one where it has none. The
// machine's part ends with it.
func (m *Machine) Exited(now time.Time, reason string, exitCode int) []Action {
	return m.exit(now, events.Exit{Reason: reason}, exitCode)
}

// Failed tells what Exited does, of a script that its agent gives each step to and that did not end well, and whether the agent keeps the
// state that it left. It tells the step, too, where the script ended in it by itself. One that was told to give its step up may end by
// what broke that, unless it says that its error came before, inStep: its group is gone before it has ended, and the others may be first.
func (m *Machine) Failed(now time.Time, reason string, exitCode int, inStep, keeps bool) []Action {
	exit := events.Exit{Reason: reason, Keeps: keeps}
	if exitCode > 0 && (m.trainer == training || inStep && m.trainer == abandoning) {
		step := m.done
		exit.Step = &step
	}
	return m.exit(now, exit, exitCode)
}

func (m *Machine) exit(now time.Time, exit events.Exit, exitCode int) []Action {
	if m.membership == over {
		return nil
	}
	exit.Expected, exit.WaitedSeconds = m.membership == leaving || m.finished(), m.stood
	if exitCode >= 0 {
		exit.ExitCode = &exitCode
	}
	if m.membership != givenUp && m.membership != outside {
		m.sayExited(now, exit)
	}
	m.end(End{Reason: "its trainer is gone: " + exit.Reason})
	return m.act()
}

func (m *Machine) sayExited(now time.Time, exit events.Exit) {
	exit.Node, exit.Incarnation, exit.Generation = m.settings.Node, m.incarnation, m.generation()
	m.do(Say{m.speaker.First(now, m.incarnation, events.NodeExited, m.settings.Node, &exit)})
}

// finished reports whether the last step is done.
func (m *Machine) finished() bool {
	return m.settings.Job.Steps > 0 && m.done >= m.settings.Job.Steps
}
