package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// history is what a negotiator says to n1, which trains under plan 3: the events of one stream, and the plans of
// the other. A plan is made of what n1 answered, so that it cannot come before the events it is made of; how much
// later it comes is chance.
type history struct {
	events []events.Event
	plans  []madePlan
	twin   twin
}

// madePlan is a plan that comes after so many of the events.
type madePlan struct {
	after int
	event events.Event
}

// twin says, from the whole history in the order in which it was made, what n1 has to do. It knows of no streams.
type twin struct {
	done    uint64   // completed steps: the trainer is in the step after it
	plan    uint64   // generation under which the trainer is
	coming  []coming // plans that take over at a later step
	promise uint64   // that still binds; zero for none
	halted  bool     // the step was abandoned and no plan came since
	said    []string
	aborted map[string]bool // negotiations, whose answers nobody waits for
}

type coming struct{ generation, resume uint64 }

const trainedSteps = 12 // after the history, as far as n1 may

// trains says under which plans the trainer goes on after the history.
func (w twin) trains() (orders []string) {
	if w.halted {
		return nil
	}
	for range trainedSteps {
		w.done++
		for len(w.coming) > 0 && w.done == w.coming[0].resume {
			w.plan, w.coming = w.coming[0].generation, w.coming[1:]
		}
		if len(w.coming) == 0 && w.promise > 0 && w.done >= w.promise {
			return orders
		}
		orders = append(orders, fmt.Sprintf("after step %d under %d", w.done, w.plan))
	}
	return orders
}

// stop is the step that n1 promises.
func (w twin) stop() uint64 {
	stop := w.done + 2
	if last := len(w.coming) - 1; last >= 0 {
		stop = max(stop, w.coming[last].resume)
	}
	return stop
}

// newHistory negotiates a few changes, some of which are aborted and tried again.
func newHistory(n *node, random *rand.Rand) *history {
	h := &history{twin: twin{done: 20, plan: 3, aborted: map[string]bool{}}}
	for generation := range 1 + random.Uint64N(4) {
		generation += 4
		for try := 0; ; try++ {
			id := fmt.Sprintf("g%d-%d", generation, try)
			abandon := h.twin.halted || random.IntN(3) == 0
			h.open(n, id, generation, abandon)
			prepared := !abandon && random.IntN(4) > 0
			if prepared {
				h.prepare(n, id, generation)
			}
			if random.IntN(8) == 0 {
				return h // and this one is under way
			}
			if (abandon || prepared) && random.IntN(2) == 0 {
				h.commit(n, generation, abandon, random.Uint64N(2))
				break
			}
			h.abort(n, id, generation, random.IntN(2) == 0)
			if random.IntN(3) == 0 {
				h.events = append(h.events, h.events[random.IntN(len(h.events))]) // said again
			}
		}
	}
	return h
}

func (h *history) open(n *node, id string, generation uint64, abandon bool) {
	h.events = append(h.events, n.event(events.NegotiationOpened, opening(id, generation, abandon, "n1", "n2")))
	h.twin.promise, h.twin.halted = 0, h.twin.halted || abandon
	h.twin.said = append(h.twin.said, "say negotiation.consented "+id)
}

func (h *history) prepare(n *node, id string, generation uint64) {
	h.events = append(h.events, n.event(events.Prepared, &events.Preparation{Negotiation: id, Generation: generation}))
	h.twin.promise = h.twin.stop()
	h.twin.said = append(h.twin.said, fmt.Sprintf("say negotiation.promised %s %d", id, h.twin.promise))
}

func (h *history) abort(n *node, id string, generation uint64, superseded bool) {
	h.events = append(h.events, n.event(events.Aborted,
		&events.Abort{Negotiation: id, Generation: generation, Reason: "test", Superseded: superseded}))
	h.twin.aborted[id] = true
	if !superseded {
		h.twin.promise = 0
	}
}

// awaited leaves out the answers that nobody waits for: whether they are said is a matter of how late a plan comes.
func (w twin) awaited(said []string) []string {
	return slices.DeleteFunc(slices.Clone(said), func(line string) bool { return w.aborted[strings.Fields(line)[2]] })
}

// commit makes a plan: at the step where n1 stands, if its step was abandoned, or else at the one that it promised
// or a later one that another node did.
func (h *history) commit(n *node, generation uint64, abandon bool, more uint64) {
	resume := h.twin.done
	if !abandon {
		resume = h.twin.promise + more
	}
	made := n.event(events.PlanCommitted, n.chained(plan(generation, resume, "n1", "n2")))
	h.plans = append(h.plans, madePlan{len(h.events), made})
	if abandon {
		h.twin.plan, h.twin.coming, h.twin.halted = generation, nil, false
	} else {
		h.twin.coming = append(h.twin.coming, coming{generation, resume})
	}
	h.twin.promise = 0 // it is kept by the plan's step
}

// hear has a node hear the history in some order of its two streams, and train on afterwards.
func (h *history) hear(n *node, random *rand.Rand) (said, orders []string) {
	heard, plans := 0, h.plans
	for heard < len(h.events) || len(plans) > 0 {
		mayPlan := len(plans) > 0 && plans[0].after <= heard
		if heard < len(h.events) && !(mayPlan && random.IntN(4) == 0) {
			n.handle(h.events[heard])
			heard++
		} else {
			n.handle(plans[0].event)
			plans = plans[1:]
		}
		if slices.Contains(n.told, "abandon") {
			n.abandoned(&said)
		}
		said = append(said, n.answers()...)
	}
	if n.machine.Snapshot().Trainer != "training" {
		return said, nil
	}
	for done := n.machine.Snapshot().Step; len(orders) < trainedSteps; {
		done++
		n.stands(done)
		if n.machine.Snapshot().Trainer != "training" {
			break
		}
		orders = append(orders, fmt.Sprintf("after step %d under %d", done, n.machine.Snapshot().Generation))
	}
	return said, orders
}

func (n *node) handle(event events.Event) {
	n.t.Helper()
	actions, err := n.machine.Handle(event)
	if err != nil {
		n.t.Fatal(err)
	}
	n.do(actions)
}

// abandoned has the trainer come back from a step that it was told to abandon.
func (n *node) abandoned(said *[]string) {
	*said = append(*said, n.answers()...)
	n.stands(n.machine.Snapshot().Step)
}

// answers takes the consents and promises that the node has said, without their details.
func (n *node) answers() (said []string) {
	for _, line := range n.told {
		if strings.HasPrefix(line, "say negotiation.consented") {
			line = strings.Join(strings.Fields(line)[:3], " ")
		}
		if strings.HasPrefix(line, "say negotiation.") {
			said = append(said, line)
		}
	}
	n.told = nil
	return said
}

func TestWhateverTheOrderOfItsTwoStreamsANodeDoesTheSame(t *testing.T) {
	const histories, orders = 1000, 10
	for seed := range uint64(histories) {
		random := rand.New(rand.NewPCG(seed, 1))
		author := &node{t: t, plans: map[uint64]string{}}
		author.chained(plan(3, 10, "n1", "n2"))
		history := newHistory(author, random)
		for order := range orders {
			n := trainingNode(t, 20)
			said, trained := history.hear(n, random)
			if got, want := history.twin.awaited(said), history.twin.awaited(history.twin.said); !slices.Equal(got, want) {
				t.Fatalf("seed %d, order %d: it says\n%q\nexpected\n%q", seed, order, got, want)
			}
			if want := history.twin.trains(); !slices.Equal(trained, want) {
				t.Fatalf("seed %d, order %d: it trains\n%q\nexpected\n%q", seed, order, trained, want)
			}
		}
	}
}
