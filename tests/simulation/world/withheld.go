package world

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reknit/reknit/events"
)

// withheld are the kinds that a node may keep to itself: what others wait for. Consents and promises are not drawn: for the
// last holder of a layer the cluster is held by its name, and the judge takes that for standing still (seeds 246 and 587 as they were
// drawn then).
var withheld = []events.Kind{
	events.ShardOffered, events.ShardReceived, events.PreCopyCaughtUp,
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
