package observer

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/model"
)

// Scene is what a cluster has shown of itself so far.
type Scene struct {
	Steps     uint64 // completed by the trainer that is ahead
	Plan      events.Plan
	Leases    map[string]int            // by service: how many instances have taken it
	Heard     map[events.Kind]int       // events of each kind
	Activated map[string]uint64         // by node: the last generation under which it completed a step
	Digests   map[string]events.Digests // by node: what it told last
	Held      string                    // why the cluster holds; empty where it does not
}

func newScene() Scene {
	return Scene{
		Leases: map[string]int{}, Heard: map[events.Kind]int{},
		Activated: map[string]uint64{}, Digests: map[string]events.Digests{},
	}
}

// Clone returns a scene that does not go on.
func (s Scene) Clone() Scene {
	s.Leases, s.Heard = maps.Clone(s.Leases), maps.Clone(s.Heard)
	s.Activated, s.Digests = maps.Clone(s.Activated), maps.Clone(s.Digests)
	return s
}

func (s *Scene) take(event events.Event) error {
	s.Heard[event.Kind]++
	switch event.Kind {
	case events.LeaseTaken:
		s.Leases[event.Subject]++
	case events.PlanCommitted:
		plan, err := events.Open[events.Plan](event)
		s.Plan, s.Held = plan, ""
		return err
	case events.ClusterHeld:
		hold, err := events.Open[events.Hold](event)
		s.Held = hold.Reason
		return err
	case events.PlanActivated:
		activation, err := events.Open[events.Activation](event)
		s.Activated[activation.Node] = activation.Generation
		return err
	case events.TrainingDigested:
		digests, err := events.Open[events.Digests](event)
		if known := s.Digests[digests.Node]; known.Generation <= digests.Generation && known.Step <= digests.Step {
			s.Digests[digests.Node] = digests // what a node said while NATS was away comes in no order
		}
		return err
	}
	return nil
}

// Incarnation returns the process that the plan in force knows under a node's name; empty where it knows none.
func (s Scene) Incarnation(node string) string {
	member, _ := s.Plan.Member(node)
	return member.Incarnation
}

// Trains reports whether every node with a place in the plan in force has completed a step under it.
func (s Scene) Trains() bool {
	return s.everybody(func(node string) bool { return s.Activated[node] == s.Plan.Generation })
}

// Complete reports whether every node with a place has told the digests of the last step under the plan in force.
func (s Scene) Complete() bool {
	return s.everybody(func(node string) bool { return s.told(node) && s.Digests[node].Final })
}

// Compared returns the step of which every node with a place told its digests last, under the plan in force; 0 while
// there is none.
func (s Scene) Compared() (step uint64) {
	same := s.everybody(func(node string) bool {
		if step == 0 {
			step = s.Digests[node].Step
		}
		return s.told(node) && s.Digests[node].Step == step
	})
	if !same {
		return 0
	}
	return step
}

func (s Scene) told(node string) bool { return s.Digests[node].Generation == s.Plan.Generation }

func (s Scene) everybody(does func(node string) bool) bool {
	return s.Plan.Generation > 0 && !slices.ContainsFunc(s.placed(), func(node string) bool { return !does(node) })
}

// placed returns the nodes that the plan in force gives something to train.
func (s Scene) placed() []string {
	var nodes []string
	for _, member := range s.Plan.Nodes {
		if _, trains := s.Plan.Holds(member.Node); trains {
			nodes = append(nodes, member.Node)
		}
	}
	return nodes
}

// digest returns the digest of the model that the nodes with a place told last.
func (s Scene) digest() (string, error) {
	units := make([]string, s.Plan.UnitCount())
	for _, node := range s.placed() {
		for _, told := range s.Digests[node].Units {
			if known := units[told.Unit]; known != "" && known != told.Digest {
				unit := events.UnitName(told.Unit, s.Plan.LayerCount())
				return "", fmt.Errorf("%s holds another %s than the others", node, unit)
			}
			units[told.Unit] = told.Digest
		}
	}
	return model.ModelDigest(units), nil
}
