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
	// Fetched is, by unit, the holders that have it from others and were not compared with all of these since. Their word is
	// that of whoever gave it, and no second one for it.
	Fetched map[int][]string `json:"fetched,omitempty"`
	// Said is what the holders of a unit, by name, said of it and was not compared yet, in the order in which they did.
	// By unit, replicas stand side by side, so that a memory of many nodes compresses to what the hub takes.
	Said map[int]map[string][]said `json:"said,omitempty"`
}

// said is what a node said of a unit at one step.
type said struct {
	Step   uint64 `json:"step"`
	Digest string `json:"digest"`
}

// mostSteps is how many steps of each unit of a node are kept. Nodes of one plan are at most a step apart. A node that
// says nothing must not make the others' words pile up, and one that speaks of steps which never come must not push out
// what others said.
const mostSteps = 4

// newComparison is that of a plan that came into force; nil where replicas are only alike.
func newComparison(plan *events.Plan) *comparison {
	if plan.Replicas == events.AlikeReplicas {
		return nil
	}
	c := &comparison{Generation: plan.Generation, Holders: make([][]string, plan.UnitCount())}
	all := plan.Partitions()
	keepsSome := func(pipeline events.Pipeline) bool { return len(pipeline.Partitions) < all }
	if slices.ContainsFunc(plan.Pipelines, keepsSome) {
		c.Copies = plan.LayerCount()
	}
	units := plan.UnitsOfAll()
	for _, node := range plan.Nodes {
		for unit := range events.Each(units[node.Node]) {
			c.Holders[unit] = append(c.Holders[unit], node.Node)
		}
	}
	for _, transfer := range plan.Migration.Transfers {
		c.fetch(transfer.Unit, transfer.To)
	}
	return c
}

// fetch notes that a holder has a unit from others.
func (c *comparison) fetch(unit int, node string) {
	if c.Fetched == nil {
		c.Fetched = map[int][]string{}
	}
	c.Fetched[unit] = append(c.Fetched[unit], node)
}

// follow takes over who fetched under the plan before, and was not compared. O(units x holders).
func (c *comparison) follow(before *comparison) {
	if c == nil || before == nil {
		return
	}
	for unit, nodes := range before.Fetched {
		if unit >= len(c.Holders) {
			continue
		}
		holds, fetches := setOf(c.Holders[unit]), setOf(c.Fetched[unit])
		for _, node := range nodes {
			if holds[node] && !fetches[node] {
				c.fetch(unit, node)
			}
		}
	}
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// digested compares a node's units with what the others said of the same step.
func (m *Machine) digested(cause events.Event, digests events.Digests) []events.Event {
	c := m.state.Compare
	if c == nil || digests.Generation != c.Generation {
		return nil
	}
	var divergences []events.Event
	for _, unit := range digests.Units {
		if unit.Unit >= len(c.Holders) || !slices.Contains(c.Holders[unit.Unit], digests.Node) {
			continue
		}
		c.note(unit.Unit, digests.Node, said{digests.Step, unit.Digest})
		if len(c.Said[unit.Unit]) < len(c.Holders[unit.Unit]) {
			continue
		}
		replicas := c.replicas(unit.Unit, digests.Step)
		if len(replicas) < len(c.Holders[unit.Unit]) {
			continue
		}
		if divergence, differ := c.judge(digests.Step, unit.Unit, replicas); differ {
			divergences = append(divergences,
				m.speaker.Say(cause, events.ReplicaDiverged, fmt.Sprintf("unit-%d", unit.Unit), divergence))
		} else {
			delete(c.Fetched, unit.Unit)
		}
		c.forget(unit.Unit, digests.Step)
	}
	return divergences
}

// note keeps what a node says of a unit, in place of what it said of an older step where that is too much.
func (c *comparison) note(unit int, node string, word said) {
	if c.Said == nil {
		c.Said = map[int]map[string][]said{}
	}
	if c.Said[unit] == nil {
		c.Said[unit] = map[string][]said{}
	}
	words := slices.DeleteFunc(c.Said[unit][node], func(before said) bool { return before.Step == word.Step })
	c.Said[unit][node] = append(words[max(0, len(words)-mostSteps+1):], word)
}

// replicas returns what the holders of a unit said of it at a step, by node.
func (c *comparison) replicas(unit int, step uint64) map[string]string {
	replicas := map[string]string{}
	for node, words := range c.Said[unit] {
		for _, word := range words {
			if word.Step == step {
				replicas[node] = word.Digest
			}
		}
	}
	return replicas
}

// forget drops what was compared.
func (c *comparison) forget(unit int, step uint64) {
	of := c.Said[unit]
	for node, words := range of {
		of[node] = slices.DeleteFunc(words, func(word said) bool { return word.Step == step })
		if len(of[node]) == 0 {
			delete(of, node)
		}
	}
	if len(of) == 0 {
		delete(c.Said, unit)
	}
}

// judge reports whether the holders of a unit differ. Who differs from more than half of them, without those that fetched it
// from others, is in the minority; where only one has not fetched, whoever differs from it and from more than half of all.
// Nobody can tell who is right where no digest has that many, nor where the majority may be copies of one that went astray.
func (c *comparison) judge(step uint64, unit int, replicas map[string]string) (*events.Divergence, bool) {
	d := &events.Divergence{Generation: c.Generation, Step: step, Unit: unit}
	fetched, count, all, voices := setOf(c.Fetched[unit]), map[string]int{}, map[string]int{}, 0
	for _, node := range slices.Sorted(maps.Keys(replicas)) {
		d.Replicas = append(d.Replicas, events.Replica{Node: node, Digest: replicas[node]})
		all[replicas[node]]++
		if len(fetched) == len(replicas) || !fetched[node] {
			count[replicas[node]]++
			voices++
		}
	}
	for digest, agree := range count {
		if 2*agree > voices && (voices > 1 || 2*all[digest] > len(replicas)) && unit >= c.Copies {
			d.Digest = digest
		}
	}
	for _, replica := range d.Replicas {
		if d.Digest != "" && replica.Digest != d.Digest {
			d.Minority = append(d.Minority, replica.Node)
		}
	}
	return d, slices.ContainsFunc(d.Replicas, func(replica events.Replica) bool { return replica.Digest != d.Replicas[0].Digest })
}
