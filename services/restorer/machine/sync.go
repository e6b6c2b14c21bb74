package machine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/rounds"
)

// mostSeconds bounds an all-reduce, so that sums of nanoseconds cannot overflow: eleven days.
const mostSeconds = 1e6

// schedule orders the all-reduces of the plan in rounds whose longest ones take as little together as can be found.
func (r *restoration) schedule() error {
	var holdings [][]layers.Range
	var names []string
	holds := r.plan.HoldsOfAll()
	for _, node := range r.plan.Nodes {
		if held, placed := holds[node.Node]; placed {
			holdings = append(holdings, []layers.Range{layers.Range(held)})
			names = append(names, node.Node)
		}
	}
	schedule, err := rounds.Plan(r.plan.LayerCount(), holdings, r.reduction(names))
	if err != nil {
		return fmt.Errorf("all-reduce rounds: %w", err)
	}
	r.plan.Sync.Rounds = nil
	for _, round := range schedule.Rounds {
		var groups []events.Group
		for _, group := range round {
			var nodes []string
			for _, node := range group.Nodes {
				nodes = append(nodes, names[node])
			}
			groups = append(groups, events.Group{Layers: events.Range(group.Layers), Nodes: nodes})
		}
		r.plan.Sync.Rounds = append(r.plan.Sync.Rounds, events.Round{Groups: groups})
	}
	return nil
}

// reduction returns how long an all-reduce among some of names lasts. Each holder sends every other a part of its
// gradients and gets the sum back, as the holder with the slowest links can (DT-FM, equation 2). Where the request does
// not tell how large gradients are, they are taken to be as large as the state: only how the groups compare matters
// then.
func (r *restoration) reduction(names []string) func(rounds.Group) int64 {
	mesh, roundTrips, gradients := r.mesh(names), r.roundTrips(names), r.Gradients
	if len(gradients) == 0 {
		gradients = r.Units
	}
	var nodes []int // whose links were looked at last: all layers often have the same holders
	perByte, begin := 0.0, 0.0
	return func(group rounds.Group) int64 {
		if len(group.Nodes) < 2 {
			return 0
		}
		if !slices.Equal(nodes, group.Nodes) {
			nodes = slices.Clone(group.Nodes)
			perByte, begin = mesh.slowest(nodes), 0
			for _, node := range nodes {
				begin = max(begin, roundTrips[node])
			}
		}
		bytes := 0.0
		for _, gradient := range gradients[group.Layers.First:group.Layers.End] {
			bytes += float64(gradient)
		}
		seconds := 2*perByte*bytes/float64(len(group.Nodes)) + begin
		return int64(1e9 * min(seconds, mostSeconds))
	}
}

// mesh is all links among some nodes, in seconds for a byte. A link that is not listed counts as usual anywhere, whatever its
// sites are: the links of all-reduces are measured before others, and so they are listed where they are slow.
type mesh struct {
	usual   float64
	unusual map[linkOf]float64
	order   []linkOf // of unusual: a sum of floats depends on it
}

func (r *restoration) mesh(names []string) mesh {
	m := mesh{usual: 1 / r.usual().BandwidthBytesPerSecond, unusual: r.unusual(names)}
	for link, rate := range m.unusual {
		m.unusual[link], m.order = 1/rate, append(m.order, link)
	}
	slices.SortFunc(m.order, func(a, b linkOf) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return m
}

// slowest returns how many seconds a byte to each of the others, or from each of them, takes the slowest of nodes. The nodes are
// ascending. O(nodes + unusual links), and no more than O(nodes^2). To look at each link among a thousand nodes took 10 ms.
func (m mesh) slowest(nodes []int) (perByte float64) {
	sends, receives := make(map[int]float64, len(nodes)), make(map[int]float64, len(nodes))
	for _, node := range nodes {
		sends[node] = m.usual * float64(len(nodes)-1)
		receives[node] = sends[node]
	}
	for _, link := range m.among(nodes) {
		sends[link.from] += m.unusual[link] - m.usual
		receives[link.to] += m.unusual[link] - m.usual
	}
	for _, node := range nodes {
		perByte = max(perByte, sends[node], receives[node])
	}
	return perByte
}

// among returns the unusual links among some of the nodes, in order.
func (m mesh) among(nodes []int) (links []linkOf) {
	if len(nodes)*len(nodes) > len(m.order) {
		isAmong := make(map[int]bool, len(nodes))
		for _, node := range nodes {
			isAmong[node] = true
		}
		for _, link := range m.order {
			if isAmong[link.from] && isAmong[link.to] {
				links = append(links, link)
			}
		}
		return links
	}
	for _, from := range nodes {
		for _, to := range nodes {
			if _, isUnusual := m.unusual[linkOf{from, to}]; isUnusual {
				links = append(links, linkOf{from, to})
			}
		}
	}
	return links
}
