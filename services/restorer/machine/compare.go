package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// comparison holds what the nodes of the plan in force said of their layers until all holders of a layer have spoken:
// replicas of one step are equal to the bit, or one of them is wrong.
type comparison struct {
	Generation uint64     `json:"generation"`
	Holders    [][]string `json:"holders"` // by layer
	// Copies is how many layers, the first ones, some hold a copy of that another made: where not all keep all partitions of the
	// optimizer state, who keeps one makes the parameters that go with it for the others.
	Copies int        `json:"copies,omitempty"`
	Steps  []stepSaid `json:"steps"` // the last steps that somebody spoke of, in order
}

// stepSaid is what was said of one step.
type stepSaid struct {
	Step   uint64                    `json:"step"`
	Layers map[int]map[string]string `json:"layers"` // digests by layer and node
}

// mostSteps is how many steps are compared at a time. Nodes of one plan are at most a step apart; a node that tells
// nothing must not make the others' words pile up.
const mostSteps = 4

// newComparison is that of a plan that came into force.
func newComparison(plan *events.Plan) *comparison {
	c := &comparison{Generation: plan.Generation, Holders: make([][]string, plan.UnitCount())}
	all := plan.Partitions()
	if slices.ContainsFunc(plan.Pipelines, func(pipeline events.Pipeline) bool { return len(pipeline.Partitions) < all }) {
		c.Copies = plan.LayerCount()
	}
	for _, node := range plan.Nodes {
		for layer := range events.Each(plan.UnitsOf(node.Node)) {
			c.Holders[layer] = append(c.Holders[layer], node.Node)
		}
	}
	return c
}

// digested compares a node's layers with what the others said of the same step.
func (m *Machine) digested(cause events.Event, digests events.Digests) []events.Event {
	c := m.state.Compare
	if c == nil || digests.Generation != c.Generation || !c.holds(digests.Node) {
		return nil
	}
	step := c.step(digests.Step)
	if step == nil {
		return nil
	}
	var said []events.Event
	for _, layer := range digests.Units {
		if layer.Unit >= len(c.Holders) || !slices.Contains(c.Holders[layer.Unit], digests.Node) {
			continue
		}
		if step.Layers[layer.Unit] == nil {
			step.Layers[layer.Unit] = map[string]string{}
		}
		step.Layers[layer.Unit][digests.Node] = layer.Digest
		if len(step.Layers[layer.Unit]) < len(c.Holders[layer.Unit]) {
			continue
		}
		if divergence, differ := c.judge(digests.Step, layer.Unit, step.Layers[layer.Unit]); differ {
			said = append(said, m.speaker.Say(cause, events.ReplicaDiverged, fmt.Sprintf("unit-%d", layer.Unit), divergence))
		}
		delete(step.Layers, layer.Unit)
	}
	return said
}

func (c *comparison) holds(node string) bool {
	return slices.ContainsFunc(c.Holders, func(holders []string) bool { return slices.Contains(holders, node) })
}

// step returns what was said of a step, or nil for one that is too old.
func (c *comparison) step(number uint64) *stepSaid {
	at, known := slices.BinarySearchFunc(c.Steps, number, func(said stepSaid, number uint64) int {
		return int(int64(said.Step - number))
	})
	if known {
		return &c.Steps[at]
	}
	if at == 0 && len(c.Steps) == mostSteps {
		return nil
	}
	c.Steps = slices.Insert(c.Steps, at, stepSaid{Step: number, Layers: map[int]map[string]string{}})
	if len(c.Steps) > mostSteps {
		c.Steps = c.Steps[1:]
		at--
	}
	return &c.Steps[at]
}

// judge reports whether the holders of a layer differ. Who differs from more than half of them is in the minority; where
// no digest has that many, nobody can tell who is right, nor where a majority may be copies of one that went astray.
func (c *comparison) judge(step uint64, layer int, said map[string]string) (*events.Divergence, bool) {
	d := &events.Divergence{Generation: c.Generation, Step: step, Unit: layer}
	count := map[string]int{}
	for _, node := range slices.Sorted(maps.Keys(said)) {
		d.Replicas = append(d.Replicas, events.Replica{Node: node, Digest: said[node]})
		count[said[node]]++
	}
	for _, replica := range d.Replicas {
		if 2*count[replica.Digest] > len(said) && layer >= c.Copies {
			d.Digest = replica.Digest
		}
	}
	for _, replica := range d.Replicas {
		if d.Digest != "" && replica.Digest != d.Digest {
			d.Minority = append(d.Minority, replica.Node)
		}
	}
	return d, len(count) > 1
}
