package main

import (
	"fmt"
	"maps"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/model"
)

// scene is what a cluster has shown of itself so far.
type scene struct {
	steps  uint64 // completed by the trainer that is ahead
	plan   events.Plan
	leases map[string]int            // by service: how many instances have taken it
	final  map[string]events.Digests // by node
}

func newScene() scene {
	return scene{leases: map[string]int{}, final: map[string]events.Digests{}}
}

func (s scene) clone() scene {
	s.leases, s.final = maps.Clone(s.leases), maps.Clone(s.final)
	return s
}

func (s *scene) take(event events.Event) error {
	switch event.Kind {
	case events.LeaseTaken:
		s.leases[event.Subject]++
	case events.PlanCommitted:
		plan, err := events.Open[events.Plan](event)
		s.plan = plan
		return err
	case events.TrainingDigested:
		digests, err := events.Open[events.Digests](event)
		if digests.Final {
			s.final[digests.Node] = digests
		}
		return err
	}
	return nil
}

// incarnation returns the process that the plan in force knows under a node's name; empty where it knows none.
func (s scene) incarnation(node string) string {
	member, _ := s.plan.Member(node)
	return member.Incarnation
}

// complete reports whether every node that trains has told its final digests under the plan in force.
func (s scene) complete() bool {
	for _, member := range s.plan.Nodes {
		_, trains := s.plan.Holds(member.Node)
		if trains && s.final[member.Node].Generation != s.plan.Generation {
			return false
		}
	}
	return s.plan.Generation > 0
}

// digest returns the digest of the model that the nodes of the plan in force hold.
func (s scene) digest() (string, error) {
	rows := make([]string, s.plan.UnitCount())
	for _, member := range s.plan.Nodes {
		for _, row := range s.final[member.Node].Units {
			if known := rows[row.Unit]; known != "" && known != row.Digest {
				return "", fmt.Errorf("%s holds another %s than the others", member.Node, events.UnitName(row.Unit, s.plan.LayerCount()))
			}
			rows[row.Unit] = row.Digest
		}
	}
	return model.ModelDigest(rows), nil
}
