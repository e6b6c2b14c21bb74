package world

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// noteSecondLife hears of the first plan in a log that lost all. It finds a generation of which nodes told, and that is used again; and
// training that begins anew though one lives who told. The judge begins its books anew there, and where a generation is used again of which
// nobody told, and nobody who lives knows.
func (w *World) noteSecondLife(event events.Event) {
	if !w.isNew {
		return
	}
	switch payload, err := event.Read(); payload := payload.(type) {
	case *events.Opening:
		w.begins = err == nil && (payload.Generation == 1 || payload.Begins)
	case *events.Commitment:
		w.isNew = false
		w.checkSecondLife(payload.Generation)
	}
}

func (w *World) checkSecondLife(generation uint64) {
	if generation <= w.toldOf && !w.lies {
		w.violation("generation %d is used again, and nodes told the log of generation %d", generation, w.toldOf)
	}
	switch teller := w.teller(); {
	case w.begins:
		if teller != nil && !w.lies {
			w.violation("training begins anew, and %s lives and told that it trained under generation %d", teller.node.name,
				teller.claimable)
		}
		w.beginAnew(generation - 1)
	case generation > w.generation():
		w.unknown = w.unknown || !w.isKnown(generation-1)
	case !w.isKnown(generation):
		w.tell("hub", "uses generation %d again: all who knew of it are gone", generation)
		w.beginAnew(generation - 1)
	}
}

// toldWait is for how long a log without a plan waits for a node that told it of one: nobody else may stand for good for one that is deaf.
const toldWait = 2 * time.Minute

// noteMissed hears for whom the cluster waits.
func (w *World) noteMissed(nodes []string) {
	for _, node := range nodes {
		if _, was := w.missed[node]; !was && w.isNew {
			w.missed[node] = w.now
		}
	}
}

// waitedFor reports whether the newest log has waited for a node, and said so.
func (w *World) waitedFor(node string) bool {
	since, missed := w.missed[node]
	return missed && w.now-since >= toldWait-time.Second
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

// teller returns a process that lives and told the newest log what it trained before; nil: there is none, but for those whom that log has
// waited for as long as for anybody, by name.
func (w *World) teller() *process {
	for _, n := range w.nodes {
		for _, p := range n.processes() {
			if p.asked > 0 && p.claimable > 0 && !w.waitedFor(n.name) {
				return p
			}
		}
	}
	return nil
}

// lacksNodes reports whether a log that lost all rightly waits for the nodes of a first plan, and said so: nobody tells of a plan. So it
// does after a stop, where fewer were started again.
func (w *World) lacksNodes() bool {
	waits := w.stopped || w.wiped && w.hub.heard[w.hub.Plans] == 0 && w.teller() == nil
	return waits && w.awaitsNodes(nil)
}

// awaitsFirst reports whether a plan that begins anew rightly waits for a node that is not heard, and the log said so: the others are fewer
// than the user wants for a first plan.
func (w *World) awaitsFirst(node *node) bool { return w.reset != nil && w.awaitsNodes(node) }

// awaitsNodes reports whether fewer scripts live, but for those of one node, than a first plan waits for, and the log said so.
func (w *World) awaitsNodes(but *node) bool {
	return w.scripts(but) < w.startNodes && strings.HasPrefix(w.heldFor, "waiting for more nodes")
}

// beginAnew begins the judge's books anew, behind so many plans. The ledger goes on: whatever was trained since those is undone.
func (w *World) beginAnew(plans uint64) {
	w.before += w.generation()
	w.hub.secondLife(plans)
	w.resumed, w.lost, w.held, w.reset, w.anew = 0, nil, nil, nil, 0
	clear(w.told)
	w.made = nil
	clear(w.places)
	clear(w.collectives)
}

// secondLife forgets what was said in the logs before this one, with so many plans.
func (h *hub) secondLife(plans uint64) {
	h.backup, h.lost = nil, plans
	for s, log := range h.log {
		log = slices.Clone(log[min(h.before[s], uint64(len(log))):])
		for i := range log {
			log[i].Sequence -= h.before[s]
		}
		h.log[s], h.before[s] = log, 0
	}
}
