package machine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// The invariants of design section 6 that the negotiator alone can break, over the whole log.
func (w *world) checkLog() error {
	plans := w.plans()
	parent, ids := "", map[string]bool{}
	for i, plan := range plans {
		if plan.Generation != uint64(i+1) {
			return fmt.Errorf("generation %d follows %d", plan.Generation, i)
		}
		if plan.Parent != parent {
			return fmt.Errorf("plan %d: parent %s, want %s", plan.Generation, plan.Parent, parent)
		}
		index := slices.IndexFunc(w.said, func(e events.Event) bool {
			return e.Kind == events.PlanCommitted && e.Subject == fmt.Sprint(plan.Generation)
		})
		parent = events.Digest(w.said[index].Data)
	}
	for _, event := range w.said {
		if event.Kind == events.Aborted && must[events.Abort](w.t, event).Superseded != w.opensToo(event.Cause) {
			return fmt.Errorf("%s says wrongly whether another negotiation follows", event.Subject)
		}
		if ids[event.ID] {
			return fmt.Errorf("two facts have the id %s, the second is a %s", event.ID, event.Kind)
		}
		ids[event.ID] = true
	}
	return w.checkMoves()
}

// checkMoves finds a move that begins twice or where all are paused, and a stop that does not wait for the receivers.
func (w *world) checkMoves() error {
	begun, stopped := map[string]*events.PreCopyStart{}, map[string]bool{}
	for _, event := range w.said {
		start, stops := begun[event.Subject], stopped[event.Subject]
		switch event.Kind {
		case events.PreCopyStarted:
			if start != nil || stops {
				return fmt.Errorf("%s begins to move twice, or where all are paused", event.Subject)
			}
			started := must[events.PreCopyStart](w.t, event)
			begun[event.Subject] = &started
		case events.Prepared, events.Scheduled:
			if start != nil && !stops && !w.mayStop(event, *start) {
				return fmt.Errorf("%s stops all while layers come", event.Subject)
			}
			stopped[event.Subject] = true
		}
	}
	return nil
}

// mayStop reports whether what made all stop is that the last receiver answered, or that they were waited for too long.
func (w *world) mayStop(stop events.Event, start events.PreCopyStart) bool {
	said := map[string]bool{}
	for _, event := range w.heard {
		if event.Kind == events.PreCopyCaughtUp && must[events.CaughtUp](w.t, event).Negotiation == start.Negotiation {
			said[event.Subject] = true
		}
		if event.ID == stop.Cause {
			return event.Kind == events.NegotiationOverdue || !slices.ContainsFunc(start.Plan.Migration.Transfers,
				func(transfer events.Transfer) bool { return !said[transfer.To] })
		}
	}
	return false
}

// opensToo reports whether a cause opened a negotiation.
func (w *world) opensToo(cause string) bool {
	return slices.ContainsFunc(w.said, func(e events.Event) bool { return e.Kind == events.NegotiationOpened && e.Cause == cause })
}

// waiting returns the processes that asked to join, live, and were neither taken nor refused.
func (w *world) waiting() []string {
	var waiting []string
	for _, node := range slices.Sorted(maps.Keys(w.process)) {
		member := events.Member{Node: node, Incarnation: w.process[node]}
		gone := slices.ContainsFunc(w.heard, func(e events.Event) bool {
			return e.Kind == events.NodeLost && must[events.NodeState](w.t, e).Incarnation == member.Incarnation ||
				e.Kind == events.LeaveRequested && e.Subject == node && w.joinedBefore(e, member.Incarnation)
		})
		refused := slices.ContainsFunc(w.refusals(node), func(r events.Refusal) bool { return r.Incarnation == member.Incarnation })
		if !gone && !refused && !w.trains(member) {
			waiting = append(waiting, node)
		}
	}
	return waiting
}

// joinedBefore reports whether a process had asked to join before an event.
func (w *world) joinedBefore(event events.Event, incarnation string) bool {
	return slices.ContainsFunc(w.heard, func(e events.Event) bool {
		return e.Kind == events.JoinRequested && e.Sequence < event.Sequence && must[events.Join](w.t, e).Incarnation == incarnation
	})
}

func TestUnderRandomChurnThePlansFormOneChainAndEveryLiveNodeGetsIn(t *testing.T) {
	followed, overdue := 0, 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t, 3)
		for range 30 {
			node := fmt.Sprintf("n%d", 1+random.IntN(6))
			w.transfer, w.seconds = random.IntN(2) == 0, 4*random.Float64()
			w.rigid[node], w.mute[events.PreCopyStarted] = random.IntN(8) == 0, random.IntN(2) == 0
			w.step += random.Uint64N(5)
			switch random.IntN(6) {
			case 0, 1:
				w.join(node)
			case 2:
				w.lose(node)
			case 3:
				w.hear(events.LeaveRequested, "/node/"+node, node, &events.Leave{Node: node})
			case 4:
				kind := []events.Kind{events.DisconnectRequested, events.ConnectRequested}[random.IntN(2)]
				if to := fmt.Sprintf("n%d", 1+random.IntN(6)); to != node {
					w.hear(kind, "/user", node, &events.LinkRequest{From: node, To: to})
				}
			case 5:
				w.deaf[node] = !w.deaf[node]
				w.tick(time.Duration(random.IntN(8)*random.IntN(20)) * time.Second)
			}
			if random.IntN(3) > 0 { // otherwise the next change comes in the middle
				w.run()
			}
		}
		w.mute[events.PreCopyStarted] = false
		w.listen()
		w.tick(6 * time.Minute) // the longest that a node waits which restarted again and again
		if err := w.checkLog(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if under := w.opened; under != nil {
			t.Fatalf("seed %d: negotiation %s is stuck in %s", seed, under.Negotiation, w.phase())
		}
		if w.held() == nil && len(w.waiting()) > 0 { // a cluster whose layers are lost rightly holds
			t.Fatalf("seed %d: joiners wait for ever: %v", seed, w.waiting())
		}
		for _, event := range w.heard {
			switch {
			case event.Kind == events.PreCopyCaughtUp:
				followed++
			case event.Kind == events.NegotiationOverdue && must[events.Overdue](t, event).Phase == string(protocol.PreCopying):
				overdue++
			}
		}
	}
	if followed == 0 || overdue == 0 {
		t.Errorf("the histories follow %d times, and are overdue %d times", followed, overdue)
	}
}

func TestAHerdOfJoinsIsOneChangeBehindTheFirst(t *testing.T) {
	w := newWorld(t, 3)
	for node := range 20 {
		w.join(fmt.Sprint("joiner", node))
	}
	w.run()
	last := w.plans()[len(w.plans())-1]
	if len(w.plans()) != 3 || len(last.Nodes) != 23 {
		t.Errorf("%d plans, %d nodes in the last; expected those of the first 3 nodes, of the first joiner and of all others",
			len(w.plans()), len(last.Nodes))
	}
	if said := w.saidKinds(); slices.Contains(said, events.Aborted) {
		t.Errorf("a negotiation was given up for a join that can wait: %v", said)
	}
}
