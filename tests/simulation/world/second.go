package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/simulation/loop"
)

// withSecond has a second process of a node start in every sixth seed, while the first stands still. It draws by itself, so that
// what else a seed does is the same without.
func withSecond(seed uint64, nodes int, faults []Fault) []Fault {
	r := rand.New(rand.NewPCG(seed, 23))
	if r.IntN(6) > 0 {
		return faults
	}
	at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
	still := 500*time.Millisecond + time.Duration(r.Int64N(int64(10*time.Second)))
	return append(faults, Fault{At: at.Truncate(time.Millisecond),
		Words: fmt.Sprintf("start second n%d for %v", 1+r.IntN(nodes), still.Truncate(time.Millisecond))})
}

// startSecond starts another process by the name of a node whose process stands still, as a supervisor does that takes it
// for dead. It returns the first, which may live on; nil where there is none.
func (w *World) startSecond(n *node) (first *process) {
	if n.process == nil || n.process.paused || n.gone {
		return nil
	}
	first = n.process
	first.freeze()
	w.doubled = true
	n.launch(w)
	return first
}

// takeName has the hub reach this process by its node's name from here on. The process that had it is not reached, and
// lives.
func (p *process) takeName() {
	if had := p.node.process; had != nil && had != p {
		p.node.unnamed = append(p.node.unnamed, had)
	}
	p.node.process = p
	p.node.unnamed = slices.DeleteFunc(p.node.unnamed, func(other *process) bool { return other == p })
}

// look tells the agent where another process has taken the node's name, unless it has asked again meanwhile.
func (p *process) look() {
	incarnation := p.incarnation
	p.later(p.latency(), func() {
		if p.isReplaced() && p.incarnation == incarnation {
			p.do(p.agent.Replaced())
		}
	})
}

// noteAsked keeps where the log has the request of a process that lives.
func (w *World) noteAsked(event events.Event) {
	join, err := events.Open[events.Join](event)
	if err != nil || w.byName(join.Node) == nil {
		return
	}
	for _, p := range w.byName(join.Node).processes() {
		if p.incarnation == join.Incarnation {
			p.asked = event.Sequence - w.hub.before[w.hub.Events]
		}
	}
}

// isReplaced reports whether the log has another process of this node's name as the last that asked for a place.
func (p *process) isReplaced() bool {
	last, err := p.hub.Events.Last(events.EventSubject(cluster, events.JoinRequested, p.node.name), p.fate(p.node.name))
	if err != nil || p.asked == 0 || last.Sequence < p.asked {
		return false
	}
	join, err := events.Open[events.Join](loop.Heard(&last))
	return err == nil && !strings.HasPrefix(join.Incarnation, p.prefix)
}

// isOutdone reports whether the newest plan has another process train by this node's name: it was made with all units elsewhere.
func (p *process) isOutdone() bool {
	plan := p.newestPlan()
	if plan == nil {
		return false
	}
	member, named := plan.Member(p.node.name)
	return named && !strings.HasPrefix(member.Incarnation, p.prefix)
}

// loseName has another process that lives by the node's name have it, if this one had it.
func (p *process) loseName() {
	n := p.node
	n.unnamed = slices.DeleteFunc(n.unnamed, func(other *process) bool { return other == p })
	if n.process != p {
		return
	}
	n.process = nil
	if last := len(n.unnamed) - 1; last >= 0 {
		n.process, n.unnamed = n.unnamed[last], n.unnamed[:last]
	}
}

// processes returns all that live by the node's name.
func (n *node) processes() []*process {
	if n.process == nil {
		return nil
	}
	return append([]*process{n.process}, n.unnamed...)
}
