package world

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/simulation/loop"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// trim has the log drop what age takes from it: what all who are there have heard, and all services remember, with its
// payloads. The newest leases stay, because a service takes its lease again before it is as old.
func (w *World) trim() {
	upTo := w.hub.heard[w.hub.Events]
	for _, name := range serviceNames {
		upTo = min(upTo, loop.Remembered(w.hub.Server, cluster, name))
	}
	for _, n := range w.nodes {
		for _, p := range n.processes() {
			upTo = min(upTo, p.heard())
		}
	}
	isLease := func(message *stream.Message) bool { return message.Data.(loop.Words).Event.Kind == events.LeaseTaken }
	loop.DropPayloads(w.hub.Events, w.hub.Events.Trim(upTo, isLease))
	w.tell("hub", "has dropped the log up to %d", upTo)
}

// trimPlans drops all plans but the newest, as comes of hundreds more. A reader that is that far behind reads none of
// them.
func (w *World) trimPlans() { loop.DropPayloads(w.hub.Plans, w.hub.Plans.Purge(1)) }

// dropPayloads has the bucket make room: what nobody has read yet goes, too.
func (w *World) dropPayloads() {
	w.emptied = true
	w.hub.Events.Payloads.Empty()
}

// heard returns up to which message of the log the process has come.
func (p *process) heard() uint64 {
	for _, r := range p.readers {
		if r.follower.Of(p.hub.Events) {
			return r.follower.Read()
		}
	}
	return math.MaxUint64
}

// withTrimming has the log of every third seed be trimmed, or its plans, and of some the bucket of payloads make room. It draws by
// itself, so that what else a seed does is the same without.
func withTrimming(seed uint64, faults []Fault) []Fault {
	r := rand.New(rand.NewPCG(seed, 19))
	add := func(words string) {
		at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
		faults = append(faults, Fault{At: at.Truncate(time.Millisecond), Words: words})
	}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(3) {
			add([]string{"trim log", "trim plans"}[r.IntN(2)])
		}
	}
	if r.IntN(6) == 0 {
		add("drop payloads")
		add(fmt.Sprintf("crash %s", serviceNames[r.IntN(len(serviceNames))]))
	}
	return faults
}
