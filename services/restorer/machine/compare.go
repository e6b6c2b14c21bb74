package machine

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reknit/reknit/events"
)

// comparison holds what the nodes of the plan in force said of their units until all holders of a unit have spoken, or more than
// half of them agree and one of these speaks of a later step: replicas of one step are equal to the bit, or one of them is wrong.
type comparison struct {
	Generation uint64     `json:"generation"`
	Holders    [][]string `json:"holders"` // by unit
	// Copies is how many units, the first ones, are copies at some of their holders: where a pipeline keeps only some
	// partitions of the optimizer state, the keepers of the others make the parameters that go with those.
	Copies int `json:"copies,omitempty"`
	// Fetched is, by unit, the holders that have it from others and were not compared with all of these since. Their word is
	// that of whoever gave it, and no second one for it. Those count as if they had it from nobody to whom two gave it together
	// that have: a transfer ends well only where its givers agree, and two do not go astray alike.
	Fetched map[int][]string `json:"fetched,omitempty"`
	// Since is the generation of the plan by which each of Fetched has it, in the same order; zero: as good as from nobody. A memory of a
	// build before lacks it.
	Since map[int][]uint64 `json:"since,omitempty"`
	// Said is what the holders of a unit, by name, said of it and was not compared yet, in the order in which they did.
	// By unit, replicas stand side by side, so that a memory of many nodes compresses to what the hub takes.
	Said map[int]map[string][]said `json:"said,omitempty"`
	// Judged is, by unit, the last steps that were judged before all holders had spoken: who speaks later is compared with these.
	Judged map[int][]judged `json:"judged,omitempty"`
}

// judged is what more than half of a unit's holders have, and one of them.
type judged struct {
	said
	Node string `json:"node"`
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

// newComparison is that of a plan that comes into force behind another; nil where replicas are only alike. O(units x holders + sources).
func newComparison(plan *events.Plan, before *comparison) *comparison {
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
	voices := map[int]map[string]bool{}
	for _, transfer := range plan.Migration.Transfers {
		if voices[transfer.Unit] == nil {
			voices[transfer.Unit] = setOf(before.voices(transfer.Unit))
		}
		since := plan.Generation
		if agreed(transfer, voices[transfer.Unit]) {
			since = 0 // in place of what it had before
		}
		c.fetch(transfer.Unit, transfer.To, since)
	}
	return c
}

// voices returns the holders of a unit that have it from nobody, or were compared with all others since. O(holders).
func (c *comparison) voices(unit int) []string {
	if c == nil || unit >= len(c.Holders) {
		return nil
	}
	since := c.since(unit)
	return slices.DeleteFunc(slices.Clone(c.Holders[unit]), func(holder string) bool { return since[holder] > 0 })
}

// agreed reports whether two voices or more give a unit together.
func agreed(transfer events.Transfer, voices map[string]bool) bool {
	givers := map[string]bool{}
	for _, source := range transfer.Sources {
		if voices[source.Node] {
			givers[source.Node] = true
		}
	}
	return len(givers) > 1
}

// fetch notes that a holder has a unit from others since a plan.
func (c *comparison) fetch(unit int, node string, since uint64) {
	if c.Fetched == nil {
		c.Fetched = map[int][]string{}
	}
	if c.Since == nil {
		c.Since = map[int][]uint64{}
	}
	for len(c.Since[unit]) < len(c.Fetched[unit]) { // a build of before planned it
		c.Since[unit] = append(c.Since[unit], 1)
	}
	c.Fetched[unit], c.Since[unit] = append(c.Fetched[unit], node), append(c.Since[unit], since)
}

// since returns the generation of the plan by which each holder of a unit that fetched it has it.
func (c *comparison) since(unit int) map[string]uint64 {
	since := make(map[string]uint64, len(c.Fetched[unit]))
	for i, node := range c.Fetched[unit] {
		since[node] = 1
		if i < len(c.Since[unit]) {
			since[node] = c.Since[unit][i]
		}
	}
	return since
}

// follow takes over who fetched under the plan before, and was not compared. One that has no place for the unit now may have it again under
// the next plan, and from nobody, where no step is made until then. O(units x holders).
func (c *comparison) follow(before *comparison) {
	if c == nil || before == nil {
		return
	}
	for unit, nodes := range before.Fetched {
		if unit >= min(len(c.Holders), len(before.Holders)) {
			continue
		}
		holds, held := setOf(c.Holders[unit]), setOf(before.Holders[unit])
		fetches, since := setOf(c.Fetched[unit]), before.since(unit)
		for _, node := range nodes {
			if (holds[node] || held[node]) && !fetches[node] {
				c.fetch(unit, node, since[node])
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
		if divergence := c.hear(unit.Unit, digests.Node, said{digests.Step, unit.Digest}); divergence != nil {
			divergences = append(divergences,
				m.speaker.Say(cause, events.ReplicaDiverged, fmt.Sprintf("unit-%d", unit.Unit), divergence))
		}
	}
	return divergences
}

// hear takes what a holder says of a unit, and returns what differs at the step that can be judged now; nil where nothing does.
func (c *comparison) hear(unit int, node string, word said) *events.Divergence {
	for _, before := range c.Judged[unit] {
		if before.Step == word.Step {
			return c.late(unit, node, word, before)
		}
	}
	c.note(unit, node, word)
	step, replicas, due := c.due(unit, node, word.Step)
	if !due {
		return nil
	}
	divergence, differ := c.judge(step, unit, replicas)
	switch {
	case len(replicas) < len(c.Holders[unit]):
		c.remember(unit, step, replicas)
	case !differ:
		delete(c.Fetched, unit)
		delete(c.Since, unit)
	}
	c.forget(unit, step)
	if !differ {
		return nil
	}
	return divergence
}

// late compares what a holder says of a step with what more than half said of it before; nil where that is equal.
func (c *comparison) late(unit int, node string, word said, right judged) *events.Divergence {
	if word.Digest == right.Digest {
		return nil
	}
	d := &events.Divergence{Generation: c.Generation, Step: word.Step, Unit: unit, Replicas: []events.Replica{
		{Node: node, Digest: word.Digest}, {Node: right.Node, Digest: right.Digest},
	}}
	if unit >= c.Copies {
		d.Digest, d.Minority = right.Digest, []string{node}
	}
	return d
}

// due returns the step of a unit that can be judged once a holder has spoken of a step, and what was said of it: that very step, once
// all have spoken; or an earlier one, on which more than half agree, the holder among them. O(holders x mostSteps).
func (c *comparison) due(unit int, node string, step uint64) (uint64, map[string]string, bool) {
	if len(c.Said[unit]) == len(c.Holders[unit]) {
		if replicas := c.replicas(unit, step); len(replicas) == len(c.Holders[unit]) {
			return step, replicas, true
		}
	}
	for _, word := range c.Said[unit][node] {
		if word.Step >= step {
			continue
		}
		replicas := c.replicas(unit, word.Step)
		if right, _ := c.majority(unit, replicas); right != "" && replicas[node] == right {
			return word.Step, replicas, true
		}
	}
	return 0, nil, false
}

// remember keeps what more than half of the holders said of a step, of the last mostSteps of these.
func (c *comparison) remember(unit int, step uint64, replicas map[string]string) {
	if c.Judged == nil {
		c.Judged = map[int][]judged{}
	}
	right, node := c.majority(unit, replicas)
	steps := c.Judged[unit]
	c.Judged[unit] = append(steps[max(0, len(steps)-mostSteps+1):], judged{said{step, right}, node})
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

// judge reports whether the holders of a unit that have spoken differ. A holder that differs from the majority is in the minority. Nobody
// can tell who is right if there is no majority, or if the majority may be copies of one that went astray.
func (c *comparison) judge(step uint64, unit int, replicas map[string]string) (*events.Divergence, bool) {
	d := &events.Divergence{Generation: c.Generation, Step: step, Unit: unit}
	if unit >= c.Copies {
		d.Digest, _ = c.majority(unit, replicas)
	}
	for _, node := range slices.Sorted(slices.Values(c.Holders[unit])) {
		digest, spoke := replicas[node]
		if !spoke {
			d.Silent = append(d.Silent, node)
			continue
		}
		d.Replicas = append(d.Replicas, events.Replica{Node: node, Digest: digest})
		if d.Digest != "" && digest != d.Digest {
			d.Minority = append(d.Minority, node)
		}
	}
	return d, slices.ContainsFunc(d.Replicas, func(replica events.Replica) bool { return replica.Digest != d.Replicas[0].Digest })
}

// majority returns what more than half of a unit's holders say, whether all have spoken or not, and the first of them; empty where no
// digest has as many. Those that fetched the unit from others do not count where two or more did not. O(holders x digests).
func (c *comparison) majority(unit int, replicas map[string]string) (digest, node string) {
	since, voices, tried := c.since(unit), c.voices(unit), map[string]bool{}
	for _, node := range slices.Sorted(maps.Keys(replicas)) {
		digest := replicas[node]
		if tried[digest] {
			continue
		}
		tried[digest] = true
		if len(voices) > 1 && isMost(voices, replicas, digest) || len(voices) < 2 && c.hadLong(unit, since, replicas, digest) {
			return digest, node
		}
	}
	return "", ""
}

// isMost reports whether more than half of some holders say a digest.
func isMost(voices []string, replicas map[string]string, digest string) bool {
	agree := 0
	for _, holder := range voices {
		if replicas[holder] == digest {
			agree++
		}
	}
	return 2*agree > len(voices)
}

// hadLong reports whether a digest is that of more than half of the holders that have the unit as long as any that does not say so,
// where all but one at most have it from others. A later reader may have it from the one that went astray meanwhile.
func (c *comparison) hadLong(unit int, since map[string]uint64, replicas map[string]string, digest string) bool {
	longest := uint64(math.MaxUint64)
	for _, holder := range c.Holders[unit] {
		if replicas[holder] != digest {
			longest = min(longest, since[holder])
		}
	}
	voices := slices.DeleteFunc(slices.Clone(c.Holders[unit]), func(holder string) bool { return since[holder] > longest })
	return isMost(voices, replicas, digest)
}
