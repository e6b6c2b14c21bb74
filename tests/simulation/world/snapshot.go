package world

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
	"github.com/reknit/reknit/tests/simulation/loop"
)

// tier is a place for snapshots: a host's disk, or the bucket that all read.
type tier struct {
	units int // of a complete snapshot; zero: only its host reads it
	parts []*part
	begun []retention.Begun // plans under which they were written
	away  bool              // nothing is written or read

	full     bool          // there is room for what lies there, and for no more
	readOnly bool          // nothing is written or removed
	takes    time.Duration // to write a part, beside what is usual
}

// part is what one node wrote of a snapshot.
type part struct {
	retention.Part
	samples  uint64          // consumed by then
	versions map[int]version // by unit
	torn     bool            // its bytes are not what its manifest says, as whoever reads them finds
}

// keptSnapshots is how many complete snapshots a tier keeps.
const keptSnapshots = 2

// tiers are those that an agent knows. A disk takes a snapshot more often than the bucket.
func (w *World) tiers() []agent.Tier {
	if w.snapshots == 0 {
		return nil
	}
	return []agent.Tier{{Name: agent.DiskTier, Every: w.snapshots}, {Name: agent.RemoteTier, Every: 2 * w.snapshots}}
}

// tierOf returns a tier that a process writes to.
func (p *process) tierOf(name string) *tier {
	if name == agent.RemoteTier {
		return p.bucket
	}
	return p.node.disk
}

// capture copies units and begins to write them. A tier that is still being written is left out.
func (p *process) capture(a agent.Capture) {
	for _, share := range a.Shares {
		t := p.tierOf(share.Tier)
		if a.Last && p.writing[share.Tier] {
			again := a
			again.Shares = []agent.Share{share}
			p.later(50*time.Millisecond, func() { p.capture(again) })
			continue
		}
		isWritten := a.Last && t.has(p.node.name, retention.ID{Step: a.Step, Plan: a.Digest})
		if p.writing[share.Tier] || isWritten {
			continue
		}
		next := &part{
			Part:     retention.Part{ID: retention.ID{Step: a.Step, Plan: a.Digest}, Node: p.node.name},
			samples:  a.Plan.SamplesAt(a.Step),
			versions: map[int]version{},
		}
		for unit := range events.Each(share.Units) {
			next.versions[unit], _ = p.state.find(unit, a.Step)
			next.Units = append(next.Units, unit)
		}
		if finding := t.fails(); finding != "" {
			p.tellUnwritten(share.Tier, next.ID, share.Units, finding)
			continue
		}
		p.writing[share.Tier] = true
		p.makeRoom(&want{tier: t, name: share.Tier, history: historyOf(a), complete: a.Complete[share.Tier], until: p.now + answersWithin,
			write: func() { p.write(t, share, a, next) },
			fails: func() { p.tellUnwritten(share.Tier, next.ID, share.Units, agent.FullFinding) }})
	}
	p.workOn()
}

// write begins to write a part.
func (p *process) write(t *tier, share agent.Share, a agent.Capture, next *part) {
	t.parts = append(t.parts, next)
	t.mark(a)
	p.later(t.takes+50*time.Millisecond+p.jitter(time.Second), func() {
		p.writing[share.Tier] = false
		finding := t.fails()
		next.Whole = finding == ""
		t.retire(p.node.name, share.Tier, a)
		p.checkKept(share.Tier)
		if next.Whole {
			p.tellFact(share.Tier, p.agent.Written(p.time(), share.Tier, next.ID, share.Units))
			p.tellFact(failsIn(share.Tier), p.agent.Resumes(p.time(), share.Tier, next.ID, share.Units))
		} else {
			p.tellUnwritten(share.Tier, next.ID, share.Units, finding)
		}
	})
}

// fails tells what keeps a tier from being written to; empty for nothing.
func (t *tier) fails() string {
	switch {
	case t.readOnly:
		return agent.ReadOnlyFinding
	case t.away:
		return agent.OtherFinding
	}
	return ""
}

// tellUnwritten says that a part could not be written.
func (p *process) tellUnwritten(tier string, id retention.ID, units []events.Range, finding string) {
	reason := map[string]string{agent.FullFinding: "no room", agent.ReadOnlyFinding: "read-only", agent.OtherFinding: "no answer"}[finding]
	p.tellFact(failsIn(tier), p.agent.Unwritten(p.time(), tier, id, units, finding, reason))
}

// failsIn is what is told of what fails in a tier: that waits for nothing else.
func failsIn(tier string) string { return "fails in " + tier }

// recallComplete tells the agent which snapshot of each tier was complete last, once the hub answers.
func (p *process) recallComplete() {
	if p.stands != nil || !slices.Contains(p.agent.Hears(), events.SnapshotCompleted) {
		return // its agent takes none, or is of an earlier build
	}
	for _, tier := range p.tiers() {
		last, err := p.hub.Events.Last(events.EventSubject(cluster, events.SnapshotCompleted, tier.Name), p.fate(p.node.name))
		switch {
		case err == nil:
			p.handle(loop.Heard(&last))
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			p.later(connectAgain, p.recallComplete)
			return
		}
	}
}

// historyOf is what a process that captures takes for the history that counts.
func historyOf(a agent.Capture) retention.History {
	return retention.History{Resume: a.Plan.ResumeStep, Plan: a.Digest, Parent: a.Plan.Parent, Logged: a.Logged}
}

// mark keeps under which plans parts are written.
func (t *tier) mark(a agent.Capture) {
	if mark := (retention.Begun{Plan: a.Digest, Logged: a.Logged}); !slices.Contains(t.begun, mark) {
		t.begun = append(t.begun, mark)
	}
}

// has reports whether a node wrote its part of a snapshot to its end.
func (t *tier) has(node string, id retention.ID) bool {
	return slices.ContainsFunc(t.parts, func(p *part) bool { return p.Whole && p.Node == node && p.ID == id })
}

// retire removes the obsolete parts of a node, and by the plan's first node those of the dead.
func (t *tier) retire(node, name string, captured agent.Capture) {
	var all []retention.Part
	for _, p := range t.parts {
		all = append(all, p.Part)
	}
	plan := captured.Plan
	counts := historyOf(captured)
	complete := retention.Told(all, captured.Complete[name])
	if t.units > 0 {
		whole := retention.Complete(all, t.units)
		complete = slices.DeleteFunc(complete, func(id retention.ID) bool { return !slices.Contains(whole, id) })
	}
	if t.readOnly || counts.IsOutdone(t.begun) {
		return
	}
	obsolete := retention.Obsolete(all, complete, keptSnapshots, counts)
	t.parts = slices.DeleteFunc(t.parts, func(p *part) bool {
		_, named := plan.Member(p.Node)
		mine := p.Node == node || plan.Nodes[0].Node == node && !named
		return mine && slices.ContainsFunc(obsolete, func(o retention.Part) bool { return o.ID == p.ID && o.Node == p.Node })
	})
}

// readable returns the units of whole parts that can be read on a node, by snapshot.
func (n *node) readable(bucket *tier) map[retention.ID]map[int]version {
	units := map[retention.ID]map[int]version{}
	for _, t := range []*tier{bucket, n.disk} { // what the disk has is read there
		for _, p := range t.parts {
			for unit, v := range p.versions {
				if !p.Whole || t.away || n.process != nil && n.process.unreadable[p] {
					continue
				}
				if units[p.ID] == nil {
					units[p.ID] = map[int]version{}
				}
				units[p.ID][unit] = v
			}
		}
	}
	return units
}

// listed tells what a node can read, as services/agent/snapshots does.
func (n *node) listed(bucket *tier, complete map[string][]retention.ID) []events.Snapshot {
	var list []events.Snapshot
	readable := n.readable(bucket)
	for _, id := range retention.Named(slices.Collect(maps.Keys(readable)), complete, events.MostSnapshots) {
		units := readable[id]
		snapshot := events.Snapshot{Step: id.Step, Plan: id.Plan, ConsumedSamples: n.samplesAt(id, bucket)}
		for unit := range units {
			snapshot.Units = append(snapshot.Units, events.Range{First: unit, End: unit + 1})
		}
		slices.SortFunc(snapshot.Units, func(a, b events.Range) int { return cmp.Compare(a.First, b.First) })
		list = append(list, snapshot)
	}
	return list
}

// samplesAt returns where training stood in its data when a snapshot was captured.
func (n *node) samplesAt(id retention.ID, bucket *tier) uint64 {
	all := append(slices.Clone(bucket.parts), n.disk.parts...)
	return all[slices.IndexFunc(all, func(p *part) bool { return p.ID == id })].samples
}

// madeUnder is what training made under a plan: what a later plan undid of it is no more.
type madeUnder struct {
	plan string // its digest
	end  uint64 // steps that count
}

// noteMade notes from which step a plan that was stored goes on: what plans before it made beyond that is undone.
func (w *World) noteMade(event events.Event) {
	if event.Kind != events.PlanCommitted {
		return
	}
	plan, err := events.Open[events.Plan](event)
	if err != nil {
		return // see checkStored
	}
	if len(w.made) == 0 {
		w.made = []madeUnder{{end: plan.ResumeStep}} // of plans that no log tells of
	}
	for i := range w.made {
		w.made[i].end = min(w.made[i].end, plan.ResumeStep)
	}
	w.made = append(w.made, madeUnder{events.Digest(event.Data), math.MaxUint64})
}

// counts reports whether a snapshot is of the history that counts: no plan after its own went on from before it.
func (w *World) counts(id retention.ID) bool {
	if len(w.made) == 0 {
		return true
	}
	at := slices.IndexFunc(w.made, func(made madeUnder) bool { return made.plan == id.Plan })
	return id.Step <= w.made[max(0, at)].end
}

// hasSnapshot reports whether those who live can read a snapshot as a whole.
func (w *World) hasSnapshot() bool {
	_, whole := w.wholeSnapshot(func(*node) bool { return true })
	return whole
}

// killHolders kills all who hold a unit under the newest plan, at once.
func (w *World) killHolders(unit int) {
	plan := w.newestPlan()
	if plan == nil {
		return
	}
	for _, n := range w.nodes {
		holds := func(units events.Range) bool { return units.First <= unit && unit < units.End }
		if slices.ContainsFunc(plan.UnitsOf(n.name), holds) {
			w.kill(n)
		}
	}
}
