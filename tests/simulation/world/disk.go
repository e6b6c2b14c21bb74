package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// heal has a tier take what is written, and give what lies there. A torn part stays torn.
func (t *tier) heal() { t.away, t.full, t.readOnly, t.takes = false, false, false, 0 }

// makeRoom reports whether a tier has room for another part. One that is full gives up what may be given up, by the product's rule, the
// first to go first.
func (p *process) makeRoom(t *tier, name string, a agent.Capture) bool {
	if !t.full {
		return true
	}
	var own []retention.Part
	for _, lies := range t.parts {
		own = append(own, lies.Part)
	}
	history := historyOf(a)
	spare := retention.Spare(own, retention.Told(own, a.Complete[name]), history)
	if len(spare) == 0 || history.IsOutdone(t.begun) {
		return false
	}
	first := true
	t.parts = slices.DeleteFunc(t.parts, func(lies *part) bool {
		goes := first && lies.ID == spare[0].ID && lies.Node == spare[0].Node && lies.Whole == spare[0].Whole
		first = first && !goes
		return goes
	})
	p.checkKept(name)
	return true
}

// tear spoils the newest whole part on a node's disk, as a power failure does behind a cache that said it was written.
func (w *World) tear(n *node) {
	var newest *part
	for _, lies := range n.disk.parts {
		if lies.Whole && (newest == nil || retention.Newer(lies.ID, newest.ID) < 0) {
			newest = lies
		}
	}
	if newest != nil {
		newest.torn = true
	}
}

// isWhole reports whether a unit of a snapshot can be read on a node.
func (w *World) isWhole(n *node, id retention.ID, unit int) bool {
	for _, t := range []*tier{n.disk, w.bucket} {
		for _, lies := range t.parts {
			if _, has := lies.versions[unit]; has && lies.ID == id && lies.Whole && !lies.torn && !t.away {
				return true
			}
		}
	}
	return false
}

// isTorn reports whether a unit of a snapshot cannot be read on a process's node, and has the process remember so: it lists that no more.
func (p *process) isTorn(id retention.ID, unit int) bool {
	for _, t := range []*tier{p.node.disk, p.bucket} { // what the disk has is read there
		for _, lies := range t.parts {
			if _, has := lies.versions[unit]; !has || lies.ID != id || !lies.Whole || t.away || p.unreadable[lies] {
				continue
			}
			if !lies.torn {
				return false
			}
			if p.unreadable == nil {
				p.unreadable = map[*part]bool{}
			}
			p.unreadable[lies] = true
		}
	}
	return true
}

// noteComplete keeps the newest snapshot of a tier that the log says is complete. One of an older step is newer where training went back.
func (w *World) noteComplete(snapshot *events.CompleteSnapshot) {
	id, before := retention.ID{Step: snapshot.Step, Plan: snapshot.Plan}, w.told[snapshot.Tier]
	if before.Plan != id.Plan || before.Step < id.Step {
		w.told[snapshot.Tier] = id
	}
}

// checkKept finds a part removed of the newest snapshot of a tier that the log says is complete, where no newer one is whole. A snapshot of
// a history that was left may go for any that counts, and is of no other history once a later plan goes on from a later step.
func (w *World) checkKept(name string) {
	told, isTold := w.told[name]
	if !isTold || w.lies {
		return
	}
	if !w.counts(told) {
		w.left[told] = true
	}
	for _, id := range w.wholeOf(name) {
		if id == told || w.counts(id) && (id.Step >= told.Step || w.left[told]) {
			return
		}
	}
	w.violation("parts of the newest complete snapshot, of step %d on tier %s, were removed, and no newer one is whole", told.Step, name)
}

// wholeOf returns the snapshots of a tier of which all units lie there, on whosever disk.
func (w *World) wholeOf(name string) []retention.ID {
	tiers := []*tier{w.bucket}
	if name == agent.DiskTier {
		tiers = nil
		for _, n := range w.nodes {
			tiers = append(tiers, n.disk)
		}
	}
	var parts []retention.Part
	for _, t := range tiers {
		for _, lies := range t.parts {
			parts = append(parts, lies.Part)
		}
	}
	return retention.Complete(parts, w.job.Units())
}

// withDisk has one node's disk misbehave, or two, where snapshots are taken. It draws by itself, so that what else a seed does is the same
// without. Full disks are not drawn yet: an agent may give up a part before it hears that its snapshot is complete.
func withDisk(seed uint64, nodes int, faults []Fault) []Fault {
	r := rand.New(rand.NewPCG(seed, 43))
	for range r.IntN(3) {
		at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
		node, seconds := 1+r.IntN(nodes), 1+r.IntN(15)
		words := []string{
			fmt.Sprintf("disk of n%d is read-only for %ds", node, seconds),
			fmt.Sprintf("disk of n%d takes %d", node, seconds), fmt.Sprintf("disk of n%d tears", node),
		}[r.IntN(3)]
		faults = append(faults, Fault{At: at.Truncate(time.Millisecond), Words: words})
	}
	return faults
}
