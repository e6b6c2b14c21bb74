package snapshots

import (
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
)

// lends has a node write what it trains to its memory and to a neighbour's.
func (s *scene) lends(node *Snapshots, step uint64, to string) {
	share := machine.Share{Tier: machine.MemoryTier, Units: []events.Range{{First: 0, End: 2}}, To: to}
	node.takes(s.task(step, share), export)
	node.writing.Wait()
}

func TestMemoryOutlivesTheTrainersOfANodeAndOfItsNeighbour(t *testing.T) {
	s := newScene(t)
	s.memory = new(Memory)
	a, b := s.open("a", inMemory), s.open("b", inMemory)
	s.lends(a, 8, "b")
	s.lends(a, 16, "b")
	s.lends(b, 16, "")
	a.Close()
	b.Close()
	a, b = s.open("a", inMemory), s.open("b", inMemory)
	for _, next := range []*Snapshots{a, b} {
		s.expectReadable(next, "16: 0-2", "8: 0-2")
	}
	s.lends(a, 24, "b")
	s.expectReadable(a, "24: 0-2", "16: 0-2", "8: 0-2")
	s.expectReadable(b, "24: 0-2", "16: 0-2", "8: 0-2")
}

func TestANodeThatHasLeftFindsNothingInMemory(t *testing.T) {
	s := newScene(t)
	s.memory = new(Memory)
	a := s.open("a", inMemory)
	s.lends(a, 8, "")
	a.Forget()
	a.Close()
	s.expectReadable(s.open("a", inMemory))
}

func TestAnotherJobReplacesWhatIsInMemoryOnceItTrains(t *testing.T) {
	s := newScene(t)
	s.memory = new(Memory)
	a := s.open("a", inMemory)
	s.lends(a, 8, "")
	a.Close()
	other := events.Job{Digest: events.Digest([]byte("other")), Layers: make([]events.LayerProfile, 3)}
	settings := Settings{}
	inMemory(&settings)
	for _, trains := range []bool{false, true} {
		stranger, err := Open(t.Context(), settings, Owner{Cluster: "c", Node: "a", Job: other, MemoryBytes: 1 << 20, Memory: s.memory})
		if err != nil {
			t.Fatal(err)
		}
		s.expectReadable(stranger)
		if trains {
			s.lends(stranger, 4, "")
		}
		stranger.Close()
		a = s.open("a", inMemory)
		if trains {
			s.expectReadable(a)
		} else {
			s.expectReadable(a, "8: 0-2")
		}
		a.Close()
	}
}

func TestMemoryOfNodesThatFailedIsNoMoreThanNodesHadAtATime(t *testing.T) {
	s := newScene(t)
	s.memory = new(Memory)
	for _, node := range []string{"a", "b"} {
		s.lends(s.open(node, inMemory), 8, "")
	}
	s.opened["a"].Close()
	s.opened["b"].Close()
	s.lends(s.open("c", inMemory), 16, "")
	s.expectReadable(s.open("a", inMemory)) // there is room for two, and it was the first
	s.expectReadable(s.open("b", inMemory), "8: 0-2")
	s.lends(s.opened["a"], 16, "")
	s.expectReadable(s.opened["c"], "16: 0-2")
	s.expectReadable(s.open("b", inMemory), "8: 0-2")
}
