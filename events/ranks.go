package events

// Ranks returns the nodes that train in the order of their ranks: where all of them add up the same gradients, around that ring, as
// gloo does by rank; else along the pipelines, one after the other.
func (p *Plan) Ranks() []string {
	nodes, members := []string{}, make(map[string]bool, len(p.Nodes))
	for _, member := range p.Nodes {
		members[member.Node] = true
	}
	for _, pipeline := range p.Pipelines {
		for _, stage := range pipeline.Stages {
			if members[stage.Node] { // else others stand in for it
				nodes = append(nodes, stage.Node)
			}
		}
	}
	for _, round := range p.Sync.Rounds {
		for _, group := range round.Groups {
			if len(group.Nodes) == len(nodes) {
				return group.Nodes
			}
		}
	}
	return nodes
}
