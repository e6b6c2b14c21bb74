package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// comparison holds what the nodes of the plan in force said of their units until all holders of a unit have spoken:
// replicas of one step are equal to the bit, or one of them is wrong.
type comparison struct {
	Generation uint64     `json:"generation"`
	Holders    [][]string `json:"holders"` // by unit
	// Copies is how many units, the first ones, are copies at some of their holders: where a pipeline keeps only some
	// partitions of the optimizer state, the keepers of the others make the parameters that go with those.
	Copies int `json:"copies,omitempty"`
	// Said is what each node said of its last steps, in the order in which it did.
	Said map[string][]said `json:"said,omitempty"`
}

// said is what a node said of one step and was not compared yet.
type said struct {
	Step  uint64         `json:"step"`
	Units map[int]string `json:"units"` // digests
}

// mostSteps is how many steps of each node are kept. Nodes of one plan are at most a step apart. A node that says
// nothing must not make the others' words pile up, and one that speaks of steps which never come must not push out what
// others said.
const mostSteps = 4

// newComparison is that of a plan that came into force.
func newComparison(plan *events.Plan) *comparison {
	c := &comparison{Generation: plan.Generation, Holders: make([][]string, plan.UnitCount())}
	all := plan.Partitions()
	keepsSome := func(pipeline events.Pipeline) bool { return len(pipeline.Partitions) < all }
	if slices.ContainsFunc(plan.Pipelines, keepsSome) {
		c.Copies = plan.LayerCount()
	}
	for _, node := range plan.Nodes {
		for unit := range events.Each(plan.UnitsOf(node.Node)) {
			c.Holders[unit] = append(c.Holders[unit], node.Node)
		}
	}
	return c
}

// digested compares a node's units with what the others said of the same step.
func (m *Machine) digested(cause events.Event, digests events.Digests) []events.Event {
	c := m.state.Compare
	if c == nil || digests.Generation != c.Generation {
		return nil
	}
	held := slices.DeleteFunc(slices.Clone(digests.Units), func(unit events.UnitDigest) bool {
		return unit.Unit >= len(c.Holders) || !slices.Contains(c.Holders[unit.Unit], digests.Node)
	})
	if len(held) == 0 {
		return nil
	}
	c.note(digests.Node, digests.Step, held)
	var divergences []events.Event
	for _, unit := range held {
		replicas := c.replicas(unit.Unit, digests.Step)
		if len(replicas) < len(c.Holders[unit.Unit]) {
			continue
		}
		if divergence, differ := c.judge(digests.Step, unit.Unit, replicas); differ {
			divergences = append(divergences,
				m.speaker.Say(cause, events.ReplicaDiverged, fmt.Sprintf("unit-%d", unit.Unit), divergence))
		}
		c.forget(unit.Unit, digests.Step)
	}
	return divergences
}

// note keeps what a node says of a step, in place of what it said of an older one where that is too much.
func (c *comparison) note(node string, step uint64, units []events.UnitDigest) {
	words := c.Said[node]
	at := slices.IndexFunc(words, func(words said) bool { return words.Step == step })
	if at < 0 {
		words = append(words[max(0, len(words)-mostSteps+1):], said{step, map[int]string{}})
		at = len(words) - 1
	}
	for _, unit := range units {
		words[at].Units[unit.Unit] = unit.Digest
	}
	if c.Said == nil {
		c.Said = map[string][]said{}
	}
	c.Said[node] = words
}

// replicas returns what the holders of a unit said of it at a step, by node.
func (c *comparison) replicas(unit int, step uint64) map[string]string {
	replicas := map[string]string{}
	for _, node := range c.Holders[unit] {
		for _, words := range c.Said[node] {
			if digest, spoke := words.Units[unit]; spoke && words.Step == step {
				replicas[node] = digest
			}
		}
	}
	return replicas
}

// forget drops what was compared.
func (c *comparison) forget(unit int, step uint64) {
	for _, node := range c.Holders[unit] {
		for _, words := range c.Said[node] {
			if words.Step == step {
				delete(words.Units, unit)
			}
		}
		c.Said[node] = slices.DeleteFunc(c.Said[node], func(words said) bool { return len(words.Units) == 0 })
		if len(c.Said[node]) == 0 {
			delete(c.Said, node)
		}
	}
}

// judge reports whether the holders of a unit differ. Who differs from more than half of them is in the minority.
// Nobody can tell who is right where no digest has that many, nor where the majority may be copies of one that went
// astray.
func (c *comparison) judge(step uint64, unit int, replicas map[string]string) (*events.Divergence, bool) {
	d := &events.Divergence{Generation: c.Generation, Step: step, Unit: unit}
	count := map[string]int{}
	for _, node := range slices.Sorted(maps.Keys(replicas)) {
		d.Replicas = append(d.Replicas, events.Replica{Node: node, Digest: replicas[node]})
		count[replicas[node]]++
	}
	for _, replica := range d.Replicas {
		if 2*count[replica.Digest] > len(replicas) && unit >= c.Copies {
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
