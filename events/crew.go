package events

import (
	"slices"
	"strings"
)

// Crew returns those who train by rank, in the order of their names: ranks change where they must, and not with every plan.
func (p *Plan) Crew() []Member {
	holds := p.HoldsOfAll()
	crew := slices.DeleteFunc(slices.Clone(p.Nodes), func(member Member) bool {
		_, placed := holds[member.Node]
		return !placed
	})
	slices.SortFunc(crew, func(a, b Member) int { return strings.Compare(a.Node, b.Node) })
	return crew
}
