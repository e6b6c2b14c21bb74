package events

// Hops returns the pairs of nodes that pass micro-batches on within the plan's pipelines, each once: neighbours, and who stands
// in for a lost node beside those whose layers come before and after. O(places and reroutes), times the takers of one layer.
func (p *Plan) Hops() []Pair {
	dealt, reroutes, holds := p.Dealt(), p.reroutesOf(), p.HoldsOfAll()
	var hops []Pair
	known := map[Pair]bool{}
	for _, pipeline := range dealt.Pipelines {
		begin := map[int][]crossing{} // by the first layer
		var all []crossing
		for _, stage := range pipeline.Stages {
			if reroutes[stage.Node] == nil {
				all = append(all, crossing{stage.Node, stage.Layers, pipeline.Samples})
			}
			for _, at := range reroutes[stage.Node] {
				reroute := dealt.Reroutes[at]
				all = append(all, crossing{reroute.To, reroute.at(stage.Layers, holds[reroute.To]), reroute.Samples})
			}
		}
		for _, one := range all {
			begin[one.layers.First] = append(begin[one.layers.First], one)
		}
		for _, one := range all {
			for _, next := range begin[one.layers.End] {
				if pair := PairOf(one.node, next.node); one.node != next.node && shared(one.samples, next.samples).Count() > 0 && !known[pair] {
					known[pair] = true
					hops = append(hops, pair)
				}
			}
		}
	}
	return hops
}

// crossing is a node that takes samples through layers.
type crossing struct {
	node            string
	layers, samples Range
}
