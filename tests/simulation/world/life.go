package world

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// noteSecondLife has the judge begin its books anew where training begins anew in a log that lost all: nobody is left who can tell what was
// before. It finds one who lives and told.
func (w *World) noteSecondLife(event events.Event) {
	if !w.wiped || w.generation() == 0 {
		return
	}
	if opening, err := events.Open[events.Opening](event); err == nil && event.Kind == events.NegotiationOpened {
		w.begins = opening.Generation == 1
	}
	commitment, err := events.Open[events.Commitment](event)
	if event.Kind != events.Committed || err != nil || commitment.Generation > 1 {
		return // see checkStored
	}
	if teller := w.teller(); teller != nil && !w.lies {
		w.violation("training begins anew, and %s lives and told that it trained under generation %d", teller.node.name, teller.claimable)
	}
	w.beginAnew()
}

// lifetime is training from its first step, or from a snapshot, until it begins anew. Values of a life are those of no other: a node
// that goes on with what was given up has other ones.
type lifetime struct {
	parent int    // whose steps it has before its own
	step   uint64 // after which its own begin
}

// trainedIn returns the life that made the step which follows so many others of a life.
func (j *job) trainedIn(life int, steps uint64) int {
	for life > 0 && steps < j.lives[life].step {
		life = j.lives[life].parent
	}
	return life
}

// beginLife has what follows be a new life, from the step of a plan, which may be of a snapshot.
func (w *World) beginLife(plan *events.Plan) {
	j := w.job
	j.lives = append(j.lives, lifetime{w.livedUnder[plan.Snapshot], plan.ResumeStep})
	for unit, chain := range j.chains {
		j.chains[unit] = chain[:1]
	}
}

// lifeOf returns the life of which a plan is.
func (w *World) lifeOf(plan *events.Plan) int {
	if len(w.job.lives) == 1 {
		return 0
	}
	return w.livedUnder[digestOfPlan(plan)]
}

// noteLife notes of which life a plan is that is committed.
func (w *World) noteLife(plan *events.Plan) {
	if newest := len(w.job.lives) - 1; newest > 0 {
		w.livedUnder[digestOfPlan(plan)] = newest
	}
}

func digestOfPlan(plan *events.Plan) string {
	data, err := json.Marshal(plan)
	if err != nil {
		panic(err) // it came as JSON
	}
	return events.Digest(data)
}

// teller returns a process that lives and told the newest log what it trained before; nil: there is none.
func (w *World) teller() *process {
	for _, n := range w.nodes {
		for _, p := range n.processes() {
			if p.asked > 0 && p.claimable > 0 {
				return p
			}
		}
	}
	return nil
}

// lacksNodes reports whether a log that lost all rightly waits for the nodes of a first plan, and said so: nobody tells of a plan.
func (w *World) lacksNodes() bool {
	return w.wiped && w.hub.heard[w.hub.Plans] == 0 && w.teller() == nil && w.scripts() < w.startNodes &&
		strings.HasPrefix(w.heldFor, "waiting for more nodes")
}

// beginAnew begins the judge's books anew. The ledger goes on: whatever was trained is undone.
func (w *World) beginAnew() {
	w.before += w.generation()
	w.hub.secondLife()
	w.resumed, w.lost, w.held, w.reset, w.begins, w.anew = 0, nil, nil, nil, false, 0
	clear(w.told)
	w.made = nil
	clear(w.places)
	clear(w.collectives)
}

// secondLife forgets what was said in the logs before this one.
func (h *hub) secondLife() {
	h.backup = nil
	for s, log := range h.log {
		log = slices.Clone(log[min(h.before[s], uint64(len(log))):])
		for i := range log {
			log[i].Sequence -= h.before[s]
		}
		h.log[s], h.before[s] = log, 0
	}
}
