package agentd

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/agent/fence"
	"github.com/reknit/reknit/services/agent/links"
)

func watchOf(t *testing.T, node string) *links.Watch {
	t.Helper()
	watch, err := links.Listen(t.Context(), links.Config{
		Cluster: "c", Node: node, Listen: "127.0.0.1:0", Suspect: func(string, bool, string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	return watch
}

func planOf(generation uint64, members ...events.Member) *events.Plan {
	p := &events.Plan{Cluster: "c", Generation: generation, Nodes: members}
	for _, member := range members {
		p.Pipelines = append(p.Pipelines, events.Pipeline{Stages: []events.Stage{{Node: member.Node, Layers: events.Range{End: 1}}}})
	}
	return p
}

func memberAt(watch *links.Watch, node string) events.Member {
	return events.Member{Node: node, Incarnation: node + "-1", Address: watch.Address()}
}

// Scripts of n1, n2 and n3 run under generation 1. Another leaves out n3, and is overtaken before n1 offers its place; the next leaves out
// n2, too, whose script may run.
func TestScriptsAreWaitedForThoughThePlaceBeforeWasNeverOffered(t *testing.T) {
	w1, w2, w3 := watchOf(t, "n1"), watchOf(t, "n2"), watchOf(t, "n3")
	n1, n2, n3 := memberAt(w1, "n1"), memberAt(w2, "n2"), memberAt(w3, "n3")
	s := &standIn{config: Config{Node: "n1"}, watch: w1, places: make(chan place, 1), session: new(agent.Session)}
	for i, members := range [][]events.Member{{n1, n2, n3}, {n1, n2}, {n1}} {
		s.takeUp(agent.Orders{Plan: planOf(uint64(i+1), members...), Switched: true, Step: t.Context()})
		if halts := <-s.places; len(halts.crew) > 0 || s.offered {
			t.Fatalf("generation %d does not stop the script: %+v", i+1, halts)
		}
	}
	w2.Switch(n2.Incarnation, nil)
	w3.Close()
	wait := s.scripts.Wait()
	s.hear(t.Context(), wait)
	if answering := wait.Answering(time.Now()); len(answering) != 1 || answering[0].Node != "n2" {
		t.Errorf("waits for %+v, expected n2", answering)
	} else if told := awaiting(answering, time.Now()); !slices.Equal(told.Awaits, []string{"n2"}) || told.UntilSeconds < 50 {
		t.Errorf("the others are told %+v", told)
	}
	over, end := context.WithCancel(t.Context())
	end()
	if s.awaitAbsent(over) {
		t.Error("the script starts though its step was given up")
	}
	w2.Close()
	if !s.awaitAbsent(t.Context()) {
		t.Error("the script does not start although nobody answers")
	}
}

// An agent whose host takes connections and says nothing is silent: it may be a lost packet.
func TestAnAgentThatEndedRefusesAndOneThatIsFrozenIsSilent(t *testing.T) {
	s, ended := &standIn{watch: watchOf(t, "n1")}, watchOf(t, "n2")
	ended.Close()
	if answer := s.askOne(t.Context(), fence.Absent{Script: fence.Script{Node: "n2", Address: ended.Address()}}); answer != fence.Refuses {
		t.Errorf("an agent that ended answers %d, expected that it refuses", answer)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	frozen, err := freezes(t)
	if err != nil {
		t.Fatal(err)
	}
	if answer := s.askOne(ctx, fence.Absent{Script: fence.Script{Node: "n3", Address: frozen}}); answer != fence.Silent {
		t.Errorf("a frozen agent answers %d, expected silence", answer)
	}
}

// freezes returns an address at which connections are taken, and nobody reads.
func freezes(t *testing.T) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String(), nil
}
