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
	Leases    map[string]int      // by service: how many instances have taken it
	Heard     map[events.Kind]int // events of each kind
	Activated map[string]uint64   // by node: the last generation under which it completed a step
	Digests   map[uint64]told
	Held      string   // why the cluster holds; empty where it does not
	WentBack  []uint64 // how many steps, each time training went back to a snapshot
}

// told are the digests of one step, by node: those that it told under the newest plan.
type told map[string]events.Digests

func newScene() Scene {
	return Scene{
		Leases: map[string]int{}, Heard: map[events.Kind]int{},
		Activated: map[string]uint64{}, Digests: map[uint64]told{},
	}
}

// Clone returns a scene that does not go on.
func (s Scene) Clone() Scene {
	s.Leases, s.Heard, s.WentBack = maps.Clone(s.Leases), maps.Clone(s.Heard), slices.Clone(s.WentBack)
	s.Activated, s.Digests = maps.Clone(s.Activated), maps.Clone(s.Digests)
	for step, told := range s.Digests {
		s.Digests[step] = maps.Clone(told)
	}
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
		if plan.Snapshot != "" {
			s.WentBack = append(s.WentBack, max(s.Steps, plan.ResumeStep)-plan.ResumeStep)
		}
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
		s.compare(digests)
		return err
	}
	return nil
}

func (s *Scene) compare(digests events.Digests) {
	if s.Digests[digests.Step] == nil {
		s.Digests[digests.Step] = told{}
	}
	if digests.Generation >= s.Digests[digests.Step][digests.Node].Generation {
		s.Digests[digests.Step][digests.Node] = digests
	}
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
	last := s.Digests[s.Compared()]
	return s.everybody(func(node string) bool { return last[node].Final })
}

// Compared returns the newest step whose digests every node with a place told under the plan in force; 0 while there is
// none. Nodes' words come late and in no order if NATS is far or was away.
func (s Scene) Compared() (newest uint64) {
	for step, told := range s.Digests {
		if step > newest && s.everybody(func(node string) bool { return told[node].Generation == s.Plan.Generation }) {
			newest = step
		}
	}
	return newest
}

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

// digest returns the digest of the model at the step that was compared last.
func (s Scene) digest() (string, error) {
	units, compared := make([]string, s.Plan.UnitCount()), s.Digests[s.Compared()]
	for _, node := range s.placed() {
		for _, unit := range compared[node].Units {
			if known := units[unit.Unit]; known != "" && known != unit.Digest {
				name := events.UnitName(unit.Unit, s.Plan.LayerCount())
				return "", fmt.Errorf("%s holds another %s than the others", node, name)
			}
			units[unit.Unit] = unit.Digest
		}
	}
	return model.ModelDigest(units), nil
}
