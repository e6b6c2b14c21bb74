package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// heal has a tier take what is written, and give what lies there. A torn part stays torn.
func (t *tier) heal() { t.away, t.full, t.readOnly, t.takes = false, false, false, 0 }

const (
	answersWithin = 10 * time.Second // who wants to remove a part, as in services/agent
	looksAgain    = 20 * time.Millisecond
)

// want is room that a process wants in a tier.
type want struct {
	*tier
	name     string // of the tier
	history  retention.History
	complete []retention.ID // as it knows
	asked    retention.ID   // whose part it wants to remove
	until    time.Duration
	write    func()
	fails    func()
}

// makeRoom writes once a tier has room for another part. One that is full gives up what may be given up, by the product's rule, the first
// to go first. A part that may be of the newest complete snapshot goes once it counts no more.
func (p *process) makeRoom(w *want) {
	if !w.full {
		w.write()
		return
	}
	var own []retention.Part
	for _, lies := range w.parts {
		own = append(own, lies.Part)
	}
	complete := retention.Told(own, w.complete)
	spare := retention.Spare(own, complete, w.history)
	if len(spare) == 0 || w.history.IsOutdone(w.begun) {
		p.noRoom(w)
		return
	}
	if retention.IsOpen(spare[0], complete, w.history) && !p.mayGo(w, spare[0]) {
		return
	}
	p.giveUp(w, spare[0])
	w.write()
}

func (p *process) noRoom(w *want) {
	p.writing[w.name] = false
	w.fails()
}

// mayGo reports whether a part counts no more. If that is not known yet it asks, and looks again later, or gives up.
func (p *process) mayGo(w *want, part retention.Part) bool {
	switch fate := p.agent.Fate(w.name, part.ID); {
	case fate == agent.Complete && !slices.Contains(w.complete, part.ID):
		w.complete = append([]retention.ID{part.ID}, w.complete...)
		p.makeRoom(w)
		return false
	case fate != agent.Undecided:
		return true
	case p.now >= w.until:
		p.noRoom(w)
		return false
	case w.asked != part.ID:
		var units []events.Range
		for _, unit := range slices.Sorted(slices.Values(part.Units)) {
			units = append(units, events.Range{First: unit, End: unit + 1})
		}
		w.asked = part.ID
		p.tellFact(w.name, p.agent.Withdraws(p.time(), w.name, part.ID, units))
	}
	p.later(looksAgain, func() { p.makeRoom(w) })
	return false
}

func (p *process) giveUp(w *want, given retention.Part) {
	first := true
	w.parts = slices.DeleteFunc(w.parts, func(lies *part) bool {
		goes := first && lies.ID == given.ID && lies.Node == given.Node && lies.Whole == given.Whole
		first = first && !goes
		return goes
	})
	p.checkKept(w.name)
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
		delete(w.untold, snapshot.Tier)
	}
}

// checkKept finds a part removed of the newest snapshot of a tier that the log says is complete, where no newer one is whole. A snapshot of
// a history that was left may go for any that counts, in whatever tier, and one of which only a log told that is lost for one as new.
func (w *World) checkKept(name string) {
	told, isTold := w.told[name]
	if !isTold || w.lies || w.program != "" { // agents of an earlier build remove parts unasked
		return
	}
	isLeft := !w.counts(told)
	if isLeft && w.hasSnapshot() {
		return
	}
	if newest, whole := w.wholeSnapshot(func(*node) bool { return true }); whole && w.untold[name] && newest.Step >= told.Step {
		return
	}
	for _, id := range w.wholeOf(name) {
		if id == told || w.counts(id) && (id.Step >= told.Step || isLeft) {
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
// without.
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

// withFull has two disks have no more room in half of the seeds that take snapshots, within a second, for a while or until all is mended,
// while others are slow. Snapshots are taken more often then, so that several are to be written. It draws by itself, too, and not where a
// node leaves: where all others are killed or silent and a leaver alone can read a snapshot, the plan that goes back to it has nobody else,
// and breaks the invariant that a plan names no leaver (seed 107 as it was drawn then).
func withFull(seed uint64, nodes int, every uint64, faults []Fault) (uint64, []Fault) {
	r := rand.New(rand.NewPCG(seed, 47))
	leaves := func(fault Fault) bool { return strings.HasPrefix(fault.Words, "leave") }
	if r.IntN(2) == 0 || slices.ContainsFunc(faults, leaves) {
		return every, faults
	}
	at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)/2))
	for i, node := range r.Perm(nodes) {
		words := fmt.Sprintf("disk of n%d takes %d", 1+node, r.IntN(4))
		if i < 2 {
			words = fmt.Sprintf("disk of n%d is full", 1+node)
		}
		if r.IntN(2) == 0 {
			words += fmt.Sprintf(" for %ds", 1+r.IntN(30))
		}
		when := at + time.Duration(r.Int64N(int64(time.Second)))
		faults = append(faults, Fault{At: when.Truncate(time.Millisecond), Words: words})
	}
	return 1 + r.Uint64N(4), faults
}
