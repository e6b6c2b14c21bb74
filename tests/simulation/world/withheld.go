package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// withheld are the kinds that a node may keep to itself: what others wait for.
var withheld = []events.Kind{
	events.Consented, events.Consented, events.Consented, events.Promised, events.ShardOffered, events.ShardReceived, events.PreCopyCaughtUp,
	events.PlanActivated, events.StepBroken, events.ConsentDelayed,
}

// withWithheld has a node keep a kind to itself in every sixth seed. It draws by itself, so that what else a seed does is the same
// without.
func withWithheld(seed uint64, nodes int, faults []Fault) []Fault {
	r := rand.New(rand.NewPCG(seed, 31))
	if r.IntN(6) > 0 {
		return faults
	}
	at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
	return append(faults, Fault{At: at.Truncate(time.Millisecond), Words: fmt.Sprintf("withhold n%d %s for %ds",
		1+r.IntN(nodes), withheld[r.IntN(len(withheld))], 2+r.IntN(30))})
}

// words are the kinds whose fields say how far a node is, how fast, or how long it needs.
var words = []events.Kind{pulses, events.ConsentDelayed, events.PlanActivated, events.Promised}

// withWord has one node of every tenth seed misbehave in two ways at once until all others train: it keeps a kind to itself, and lies in
// whatever it says of its time and its steps. It draws by itself, so that what else a seed does is the same without. For the
// consent of a last holder all wait, also where others claim to have its units (seed 212 as it was drawn then): it is not drawn.
func withWord(seed uint64, nodes int) string {
	r := rand.New(rand.NewPCG(seed, 41))
	if r.IntN(10) > 0 {
		return ""
	}
	node, kind := 1+r.IntN(nodes), words[r.IntN(len(words))]
	fields := slices.DeleteFunc(fieldsOf(nodeSays()[kind]), func(f field) bool {
		return f.path == "node" || f.path == "incarnation" || f.path == "negotiation"
	})
	of := fields[r.IntN(len(fields))]
	kept := withheld[r.IntN(len(withheld))]
	if kept == events.Consented {
		return ""
	}
	return fmt.Sprintf("withhold n%d %s; lie n%d %s %s %s", node, kept, node, kind, of.path, of.hows[r.IntN(len(of.hows))])
}
