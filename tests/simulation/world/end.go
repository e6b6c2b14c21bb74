package world

import (
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
)

// madeLast reports whether a process has made the job's last step.
func (p *process) madeLast() bool { return p.steps > 0 && p.done >= p.steps }

// tellDigests tells those of the last step, which end training, and those of some before, to be compared.
func (p *process) tellDigests() {
	if final := p.madeLast(); final || p.done%p.compareEvery == 0 {
		p.do([]agent.Action{agent.Say{Event: p.agent.Digested(p.time(), p.done, final, p.state.digests())}})
	}
}

// endAgain tells the last ones again, under a plan that gave the process other units after the last step.
func (p *process) endAgain() {
	p.tellDigests()
	p.do(p.agent.Boundary(p.done))
}

// checkEnd looks at the end of a job: all units were trained to its last step, nobody who lives under the newest plan has
// yet to make it, and the digest is the oracle's.
func (w *World) checkEnd(end *events.JobEnd) {
	if w.ended {
		w.violation("the job is complete for a second time")
	}
	w.ended, w.endedAt = true, w.now
	if end.Step != w.steps {
		w.violation("the job is complete at step %d of %d", end.Step, w.steps)
	}
	plan := w.newestPlan()
	for _, n := range w.nodes {
		p := n.process
		if p == nil || plan == nil || p.paused || w.taken[incarnation{n.name, p.incarnation}] {
			continue
		}
		member, named := plan.Member(n.name)
		_, placed := plan.Holds(n.name)
		if named && placed && member.Incarnation == p.incarnation && !p.madeLast() {
			w.violation("the job is complete, and %s has made %d steps of %d", n.name, p.done, w.steps)
		}
	}
	var digests strings.Builder
	for unit := range w.job.Units() {
		digests.WriteString(digestOf(w.job.value(unit, w.steps)) + "\n")
	}
	if want := events.Digest([]byte(digests.String())); end.Digest != "" && end.Digest != want && len(w.stains) == 0 && !w.lies {
		w.violation("the job is complete with the digest %s, and undisturbed training has %s", end.Digest, want)
	}
}

// answers reports whether a negotiator acts that has heard the whole log: it answers what one before it left open.
func (w *World) answers() bool {
	return slices.ContainsFunc(w.services["negotiator"].running, func(i *instance) bool { return i.life.CaughtUp() })
}

// inTime is how long a service may take to hear that the job is complete, where nobody keeps it from that.
const inTime = time.Second

// missedAfterwards finds a node that is said lost although the job is complete. The monitor may have decided so before, and be late.
func (w *World) missedAfterwards(event events.Event, lost *events.NodeState) {
	monitor, decided := w.services["monitor"].last(), w.now-w.time().Sub(event.Time)
	if w.ended && decided > w.endedAt+inTime && monitor != nil && monitor.life.CaughtUp() {
		w.violation("%s is lost, and the job is complete", lost.Node)
	}
}

// incarnation names a process for its cluster.
type incarnation struct{ node, incarnation string }

// allEnded lets time pass until the job is complete and nobody trains any more, or is bound to stand still because what is
// missing is nowhere.
func (w *World) allEnded() (held bool) {
	for began := w.now; w.now < began+w.patience(); {
		w.Run(time.Second)
		switch {
		case w.ended && w.living() == 0 && !w.answers():
		case w.ended && w.living() == 0:
			return false
		case !w.ended && w.now > began+time.Minute && !w.recoverable():
			return true
		}
	}
	if !w.ended && !w.recoverable() {
		return true
	}
	w.violation("the job is not at its end %v after the last fault: complete %v, %d live, %s", w.patience(), w.ended, w.living(),
		w.whatIsMissing(w.steps, nil))
	return false
}
