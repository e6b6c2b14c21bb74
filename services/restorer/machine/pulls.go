package machine

import (
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/replicate"
)

// pulls is how fast each of the plan's nodes can fetch over its own links. Holders of the same layers send as one: the
// sum of their links. A way through the hub counts as the tenth of a link that it is taken for, also where the hub will
// be spared.
type pulls struct {
	bytes     []int64     // per layer
	groupOf   []int       // per layer: which of the groups of layers with the same senders
	senders   [][]int     // per group: the kinds of holders that hold it
	rates     [][]float64 // per node and kind of holder: bytes a second
	downlinks []float64   // per node: its best link
}

// FetchSeconds is how long each node takes to fetch its transfers of a plan that Restore returned while nobody else
// fetches: by the longest of these Restore tells placements of as many bytes apart. The request is the one that Restore
// was given. It fails where a holder's units are not the model's.
func FetchSeconds(request events.RestorationRequest, plan events.Plan) (map[string]float64, error) {
	r := &restoration{RestorationRequest: request, plan: plan}
	pulls, err := r.pulls()
	if err != nil {
		return nil, err
	}
	missing, seconds := map[string][]int{}, map[string]float64{}
	for _, transfer := range plan.Migration.Transfers {
		missing[transfer.To] = append(missing[transfer.To], transfer.Unit)
	}
	for i, node := range plan.Nodes {
		if units := missing[node.Node]; len(units) > 0 {
			seconds[node.Node] = pulls.seconds(units)(i)
		}
	}
	return seconds, nil
}

// pulls adds up the links. O(names^2 + layers * kinds of holders).
func (r *restoration) pulls() (pulls, error) {
	_, names := r.numbered()
	p, senders := pulls{bytes: r.Units}, make([][]int, len(r.Units))
	kinds := map[string]int{}
	kindOf := make([]int, len(names))
	for i, name := range names {
		set, err := layers.NewSet(len(r.Units), r.heldBy(name).ranges...)
		if err != nil {
			return p, fmt.Errorf("holder %s: %w", name, err)
		}
		key := string(set.AppendKey(nil))
		kind, known := kinds[key]
		if !known {
			kind = len(kinds)
			kinds[key] = kind
			for _, layer := range set.Members() {
				senders[layer] = append(senders[layer], kind)
			}
		}
		kindOf[i] = kind
	}
	p.group(senders)
	p.downlinks = make([]float64, len(r.plan.Nodes))
	for range r.plan.Nodes {
		p.rates = append(p.rates, make([]float64, len(kinds)))
	}
	for from, row := range r.bandwidths(names) {
		for to, rate := range row[:len(p.rates)] {
			p.rates[to][kindOf[from]] += rate
			p.downlinks[to] = max(p.downlinks[to], rate)
		}
	}
	return p, nil
}

// group numbers the layers of which each has these senders by what senders they have.
func (p *pulls) group(senders [][]int) {
	known := map[string]int{}
	for _, kinds := range senders {
		key := keyOf(kinds)
		group, before := known[key]
		if !before {
			group = len(p.senders)
			known[key], p.senders = group, append(p.senders, kinds)
		}
		p.groupOf = append(p.groupOf, group)
	}
}

// seconds returns how long a node takes to fetch the layers when nobody else fetches, by its index among the plan's
// nodes.
func (p pulls) seconds(missing []int) func(node int) float64 {
	var bytes []int64
	var senders [][]int
	at := map[int]int{} // by group
	for _, layer := range missing {
		i, known := at[p.groupOf[layer]]
		if !known {
			i = len(senders)
			at[p.groupOf[layer]] = i
			bytes, senders = append(bytes, 0), append(senders, p.senders[p.groupOf[layer]])
		}
		bytes[i] += p.bytes[layer]
	}
	return func(node int) float64 {
		return replicate.PullSeconds(bytes, senders, p.rates[node], p.downlinks[node])
	}
}
