package policy

import (
	"math/bits"
	"slices"
)

// mostTried is the most unequal nodes of which every choice is tried for a first plan: 31 searches, some 10 ms.
const mostTried = 5

// fewer is the best plan of all that use only some of a few unequal nodes: a search that is not exact may find a faster
// one without a node that is in the way. Only a first plan takes the time for it; later the plan in force stays a
// candidate, so that a node that joins slows nothing down.
func (s Situation) fewer() []Candidate {
	if len(s.Current) > 0 || len(s.Nodes) > mostTried || !s.unequal() {
		return nil
	}
	var best []Candidate
	for chosen := uint(1); chosen < 1<<len(s.Nodes)-1; chosen++ {
		candidates, _ := s.only(chosen).searched()
		for _, candidate := range candidates {
			if len(best) == 0 || s.better(candidate, best[0]) {
				best = []Candidate{candidate}
			}
		}
	}
	return best
}

// better reports whether a candidate has more of the replicas asked for or, with as many, a shorter step.
func (s Situation) better(a, b Candidate) bool {
	if mine, theirs := min(a.Replicas, s.MinReplicas), min(b.Replicas, s.MinReplicas); mine != theirs {
		return mine > theirs
	}
	return a.StepSeconds < b.StepSeconds
}

// only is the situation with some of the nodes, a bit for each.
func (s Situation) only(chosen uint) Situation {
	number := func(node int) int { return bits.OnesCount(chosen & (1<<node - 1)) }
	has := func(node int) bool { return chosen>>node&1 == 1 }
	some := s
	some.Nodes, some.MemoryBytes, some.Speed, some.Network.Dear, some.Network.Links = nil, nil, nil, nil, nil
	for node, name := range s.Nodes {
		if !has(node) {
			continue
		}
		some.Nodes, some.MemoryBytes = append(some.Nodes, name), append(some.MemoryBytes, s.MemoryBytes[node])
		if s.Speed != nil {
			some.Speed = append(some.Speed, s.Speed[node])
		}
	}
	for _, pair := range s.Network.Dear {
		if has(pair[0]) && has(pair[1]) {
			some.Network.Dear = append(some.Network.Dear, [2]int{number(pair[0]), number(pair[1])})
		}
	}
	for _, link := range s.Network.Links {
		if has(link.From) && has(link.To) {
			link.From, link.To = number(link.From), number(link.To)
			some.Network.Links = append(some.Network.Links, link)
		}
	}
	some.Empty = slices.DeleteFunc(slices.Clone(s.Empty),
		func(name string) bool { return !slices.Contains(some.Nodes, name) })
	return some
}
