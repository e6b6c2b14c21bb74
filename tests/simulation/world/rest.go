package world

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reknit/reknit/events"
)

// usualRest is the longest time for which a script rested before, as its agent tells.
const usualRest = 3 * time.Second

// rests is what the agent of a script that knows nothing of it tells while that has neither used a processor nor written for long; nil:
// it did.
func (p *process) rests() *events.Script {
	if !p.node.rests {
		return nil
	}
	return &events.Script{RestsSeconds: (p.now - p.node.rested).Seconds(), UsualSeconds: usualRest.Seconds()}
}

// checkRest finds a script that is said to rest of which no agent told so.
func (w *World) checkRest(delay *events.StepDelay) {
	if n := w.byName(delay.Node); delay.By == delay.Node && n != nil && n.rested == 0 && !w.lies {
		w.violation("the script of %s is said to rest, and its agent told of no rest", delay.Node)
	}
}

// withRests has trainers do something else in every eighth seed: a script hangs between two steps, rests, or takes long to make a step of
// which it has all sums. It draws by itself, so that what else a seed does is the same without.
func withRests(seed uint64, nodes int, faults []Fault) []Fault {
	r := rand.New(rand.NewPCG(seed, 59))
	if r.IntN(8) > 0 {
		return faults
	}
	for range 1 + r.IntN(2) {
		at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
		node, seconds := 1+r.IntN(nodes), 1+r.IntN(15)
		words := []string{
			fmt.Sprintf("hang n%d between steps for %ds", node, seconds),
			fmt.Sprintf("update of n%d takes %d for %ds", node, 1+r.IntN(10), seconds),
			fmt.Sprintf("script of n%d rests %d for %ds", node, 61+r.IntN(600), seconds),
		}[r.IntN(3)]
		faults = append(faults, Fault{At: at.Truncate(time.Millisecond), Words: words})
	}
	return faults
}
