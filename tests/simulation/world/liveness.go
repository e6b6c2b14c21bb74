package world

import (
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// patience is for how long training may stand still once all faults are over: a node that restarted again and again
// waits for up to five minutes. A cluster that holds is tried again every 30 s, and a transfer is given up after 30 s.
const patience = 6 * time.Minute

// ownWord is for how long all wait at most because one node says that it needs time, and then does not answer: as long as the
// negotiator lets anybody have of whom it knows nothing. Half of it the next time.
var ownWord = time.Duration(protocol.Record{}.Excuse(0) * float64(time.Second))

// newerComes is for how long a reset from snapshots waits at most for who has a newer one than those who are there can read, as the
// negotiator says in its hold.
const newerComes = 15 * time.Minute

// patience is for how long training may stand still in this run: longer where a node has kept something to itself, and never longer
// by more than its word is worth; and longer where a reset waits for who has the newest snapshot.
func (w *World) patience() time.Duration {
	most := patience
	if w.withheld {
		most += 2 * ownWord
	}
	if w.awaitsNewer {
		most += newerComes
	}
	return most
}

// heal mends the network and resumes whoever was stopped. The dead stay dead.
func (w *World) heal() {
	w.tell("FAULT", "all is mended")
	w.chatter.mended, w.chatter.opened = w.faults, 0
	w.network = newNetwork()
	for _, n := range w.nodes {
		n.slowness, n.reads, n.storing, n.kernel, n.updates, n.breaks, n.silent, n.lies, n.blurts = 1, 1, 0, 0, 0, 0, "", nil, ""
		n.rests = false
		n.disk.heal()
		w.unhang(n)
		for _, p := range n.processes() {
			if p.paused {
				p.resume()
			}
		}
	}
	for _, name := range serviceNames {
		s := w.services[name]
		s.dies = death{}
		for _, i := range slices.Clone(s.running) {
			i.resume()
		}
	}
	clear(w.hub.odds)
	w.bucket.heal()
	w.deadly, w.healed = nil, true
	w.after(operatorTakes, func() { w.release(false) })
	for _, bound := range w.hub.stores() {
		bound(0)
	}
	if w.hub.State() != stream.Up {
		w.hubIsBack()
	}
}

// goOn lets time pass until everybody who lives trains, or is bound to stand still because what is missing is nowhere.
func (w *World) goOn() (held bool) {
	if w.steps > 0 {
		return w.allEnded()
	}
	from := w.newest
	for began := w.now; w.now < began+w.patience(); {
		w.Run(time.Second)
		if w.whatIsMissing(from+3, nil) == "" {
			return false
		}
		if w.now > began+time.Minute && !w.recoverable() {
			return true
		}
	}
	if !w.recoverable() {
		return true
	}
	w.violation("training does not go on %v after the last fault, though all state is there: %s",
		w.patience(), w.whatIsMissing(from+3, nil))
	return false
}

// othersGoOn lets time pass with one node at fault until all others train, unless only that node has what they need.
func (w *World) othersGoOn(fault string) {
	node := w.stays(fault)
	from := w.newest
	for began := w.now; w.now < began+w.patience(); {
		w.Run(time.Second)
		if w.ended || w.whatIsMissing(from+3, node) == "" {
			return
		}
	}
	if w.awaitsFirst(node) || w.undecided {
		return
	}
	all, _ := w.wholeStep(func(*process) bool { return true })
	others, whole := w.wholeStep(func(p *process) bool { return p.node != node })
	if whole && others+apart >= all {
		w.violation("%v after %s all others still stand: %s", w.patience(), fault, w.whatIsMissing(from+3, node))
	}
}

// apart is how many steps those can be apart who trained together.
const apart = 2

// stays does what is to stay, and returns the node that it is done to.
func (w *World) stays(fault string) *node {
	for one := range strings.SplitSeq(fault, "; ") {
		if err := w.Do(one); err != nil {
			panic(err) // scripts are drawn from the same table
		}
	}
	for _, word := range strings.Fields(fault) {
		if n := w.byName(word); n != nil {
			return n
		}
	}
	return nil
}

// compare lets time pass, where a copy was spoiled, until the replicas of the newest plan were compared and all train on.
// Nobody compares them before a restorer has heard the whole log.
func (w *World) compare() {
	if len(w.stains) == 0 || w.ended {
		return
	}
	from := w.newest
	for end := w.now + patience; w.now < end; {
		w.Run(time.Second)
		if restorer := w.services["restorer"].last(); restorer == nil || !restorer.life.CaughtUp() {
			from = w.newest
		}
		if w.whatIsMissing(max(from, w.resumed)+2*w.compareEvery, nil) == "" {
			w.judgeStains()
			return
		}
	}
}

// whatIsMissing says why not everybody who lives, or all but one, trains under the newest plan beyond a step; empty
// where all do.
func (w *World) whatIsMissing(beyond uint64, but *node) string {
	plan := w.newestPlan()
	if plan == nil {
		return "there is no plan"
	}
	placed := 0
	for _, n := range w.nodes {
		member, named := plan.Member(n.name)
		p := n.process
		switch {
		case n == but:
			continue
		case p == nil && named:
			return n.name + " is dead, and the plan names it"
		case p == nil:
			continue
		case len(n.unnamed) > 0:
			return n.name + " has another process, which lives"
		case named && member.Incarnation != p.incarnation:
			return "the plan names " + n.name + " as " + member.Incarnation
		case !named:
			return n.name + " lives, and the plan does not name it"
		case p.agent.Snapshot().Membership == "leaving":
			return n.name + " asked to leave, and the plan names it"
		}
		if _, trains := plan.Holds(n.name); !trains {
			continue
		}
		placed++
		if p.generation != plan.Generation || p.done < beyond {
			return n.name + " does not train under the newest plan"
		}
	}
	if placed == 0 && w.living() > 0 {
		return "nobody trains"
	}
	return ""
}

// scripts is how many processes live that can train, but for those of one node.
func (w *World) scripts(but *node) int {
	scripts := 0
	for _, n := range w.nodes {
		if n != but && n.process != nil && n.process.stands == nil {
			scripts++
		}
	}
	return scripts
}

func (w *World) living() int {
	living := 0
	for _, n := range w.nodes {
		if n.process != nil {
			living++
		}
	}
	return living
}

// newestPlan is nil where there is none.
func (w *World) newestPlan() *events.Plan {
	plans := w.hub.plans()
	if len(plans) == 0 {
		return nil
	}
	plan, err := plans[len(plans)-1].Read()
	if err != nil {
		return nil // see checkStored
	}
	return plan.(*events.Plan)
}

func (w *World) generation() uint64 { return w.hub.lost + uint64(len(w.hub.plans())) }
