package world

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// resetTold hears that what was trained is given up.
func (w *World) resetTold(reset *events.JobReset) {
	if plan := w.newestPlan(); plan != nil && reset.Generation == plan.Generation {
		w.reset, w.ended = reset, false
	}
}

// checkAnew looks at the plan that follows a reset: it begins at the first step, or at the newest snapshot that its nodes can read, as the
// user asked, whatever anybody held before.
func (w *World) checkAnew(plan *events.Plan) {
	if w.reset == nil {
		return
	}
	newest, whole := w.wholeSnapshot(func(n *node) bool {
		member, named := plan.Member(n.name)
		return named && n.process != nil && member.Incarnation == n.process.incarnation
	})
	switch {
	case !w.reset.Snapshots && (plan.ResumeStep > 0 || plan.Data.ConsumedSamples > 0 || plan.Snapshot != ""):
		w.violation("training was to begin anew, and generation %d goes on from step %d, sample %d, snapshot %q", plan.Generation,
			plan.ResumeStep, plan.Data.ConsumedSamples, plan.Snapshot)
	case w.reset.Snapshots && plan.Snapshot == "":
		w.violation("training was to go on from a snapshot, and generation %d goes on from step %d of none", plan.Generation, plan.ResumeStep)
	case w.reset.Snapshots && whole && newest.Step > plan.ResumeStep:
		w.violation("training was to go on from the newest snapshot, and generation %d goes on from step %d; its nodes can read step %d",
			plan.Generation, plan.ResumeStep, newest.Step)
	}
	w.beginLife(plan)
	w.reset, w.anew = nil, plan.Generation
	w.newest, w.resumed, w.wentBack = plan.ResumeStep, plan.ResumeStep, true
}

// mayBeginAnew reports whether there are enough nodes for the plan that follows a reset, and what they are to begin from.
func (w *World) mayBeginAnew() bool {
	return w.scripts(nil) >= max(w.startNodes, w.job.Stages.Min) && (!w.reset.Snapshots || w.hasSnapshot())
}

// wholeSnapshot returns the newest snapshot that counts and that some of the nodes can read as a whole.
func (w *World) wholeSnapshot(among func(*node) bool) (newest retention.ID, whole bool) {
	together := map[retention.ID]map[int]bool{}
	for _, n := range w.nodes {
		if n.process == nil || n.process.stands != nil || !among(n) {
			continue
		}
		for id, units := range n.readable(w.bucket) {
			for unit := range units {
				if !w.counts(id) || !w.isWhole(n, id, unit) {
					continue
				}
				if together[id] == nil {
					together[id] = map[int]bool{}
				}
				together[id][unit] = true
			}
		}
	}
	for id, units := range together {
		if len(units) == w.job.Units() && (!whole || id.Step > newest.Step) {
			newest, whole = id, true
		}
	}
	return newest, whole
}

// allEnd ends all scripts with the agents beside them, which keep nothing.
func (w *World) allEnd() {
	for _, n := range w.nodes {
		n.standDown()
		n.left = nil
		w.exit(n)
	}
}

// startAll starts all whose processes have ended.
func (w *World) startAll() {
	for _, n := range w.nodes {
		n.gone = false
		w.launch(n)
	}
}

// withReset has all scripts end in every twelfth seed, and a user have training begin anew, before they are started again or after. It
// draws by itself, so that what else a seed does is the same without.
func withReset(seed uint64, snapshots uint64, faults []Fault) []Fault {
	r := rand.New(rand.NewPCG(seed, 53))
	if r.IntN(12) > 0 {
		return faults
	}
	at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
	words := "begin anew"
	if snapshots > 0 && r.IntN(2) == 0 {
		words = "begin anew from snapshots"
	}
	wait := time.Duration(r.Int64N(int64(10 * time.Second)))
	return append(faults,
		Fault{At: at.Truncate(time.Millisecond), Words: fmt.Sprintf("all end for %ds", 1+r.IntN(10))},
		Fault{At: (at + wait).Truncate(time.Millisecond), Words: words})
}

// askReset has a user ask for a new beginning.
func (w *World) askReset(snapshots bool) {
	w.ask(events.ResetRequested, &events.ResetRequest{Reason: "a wrong setting", Snapshots: snapshots})
}
