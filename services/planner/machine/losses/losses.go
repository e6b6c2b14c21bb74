// Package losses foresees plan requests: what may be lost next while a plan stands, and what would be asked then.
package losses

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/planner/search"
)

// mostPairs is how many kinds of losses of two nodes are planned for.
const mostPairs = 32

// mostPlaces bounds the answers to all questions together, about 80 MB: 64 answers at 2,048 nodes. With partitions
// answers are about twice as long.
const mostPlaces = 1 << 20

// Questions are the different situations after what may be lost next, the likeliest first and within the bound: each
// node, all nodes of a host, and two nodes. It yields those so far after each loss, of which there are as many as nodes
// and more; the last it yields are all. The world stands.
func (w *World) Questions(settings machine.Settings) iter.Seq[[]policy.Canonical] {
	return func(yield func([]policy.Canonical) bool) {
		limit := max(2, mostPlaces/(search.Weighed*len(w.plan.Nodes)))
		a := asker{world: w, settings: settings, limit: limit, yield: yield}
		classes := a.nodes()
		if a.isStopped {
			return
		}
		for _, host := range w.hosts() {
			a.ask(host...)
		}
		for _, pair := range w.pairs(classes) {
			a.ask(pair.nodes[:]...)
		}
	}
}

// asker gathers questions.
type asker struct {
	world     *World
	settings  machine.Settings
	limit     int
	questions []policy.Canonical
	yield     func([]policy.Canonical) bool
	isStopped bool
}

// ask adds the question after a loss, unless an equal one is there or there are enough, and yields. Once yield said no it
// does nothing: to foresee the losses of 999 more nodes takes 0.1 s of a core and more. It returns the index of the
// question, or -1. Each failure raises the failure rate, so that it is asked with the time between failures as it is, with
// half of it, and so on.
func (a *asker) ask(lost ...string) int {
	if a.isStopped {
		return -1
	}
	request := a.world.after(lost...)
	if len(request.Nodes) == 0 {
		return -1
	}
	question := a.settings.Situation(request).Canonical()
	at := slices.IndexFunc(a.questions, question.Same)
	if at < 0 && len(a.questions) < a.limit {
		at = len(a.questions)
		for range 1 + bits.Len(uint(len(lost))) {
			a.questions = append(a.questions, question)
			question = question.Halved()
		}
	}
	a.isStopped = !a.yield(a.questions)
	return at
}

// nodes asks after the loss of each node, and returns the nodes by the question that they have in common.
func (a *asker) nodes() [][]string {
	var classes [][]string
	class := map[int]int{}
	for _, node := range a.world.plan.Nodes {
		at := a.ask(node.Node)
		if at < 0 {
			continue
		}
		if _, known := class[at]; !known {
			class[at] = len(classes)
			classes = append(classes, nil)
		}
		classes[class[at]] = append(classes[class[at]], node.Node)
	}
	return classes
}

// hosts are the nodes that share an address and fail together, in the order of the plan.
func (w *World) hosts() [][]string {
	var hosts [][]string
	number := map[string]int{}
	for _, node := range w.plan.Nodes {
		end := strings.LastIndexByte(node.Address, ':')
		if end < 0 {
			continue // no host and port
		}
		host := node.Address[:end]
		if _, known := number[host]; !known {
			number[host] = len(hosts)
			hosts = append(hosts, nil)
		}
		hosts[number[host]] = append(hosts[number[host]], node.Node)
	}
	return slices.DeleteFunc(hosts, func(nodes []string) bool { return len(nodes) < 2 })
}

// pair is two nodes, and how many others are like them: of the same two classes, and in one pipeline or not.
type pair struct {
	nodes [2]string
	like  int
}

// pairs are one pair of each kind, those with most like them first. O(nodes * classes).
func (w *World) pairs(classes [][]string) []pair {
	pipelineOf := map[string]int{}
	for p, pipeline := range w.plan.Pipelines {
		for _, stage := range pipeline.Stages {
			pipelineOf[stage.Node] = p
		}
	}
	var pairs []pair
	for i, some := range classes {
		for _, others := range classes[i:] {
			pairs = append(pairs, kinds(some, others, pipelineOf)...)
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.like, a.like) })
	return pairs[:min(len(pairs), mostPairs)]
}

// kinds are the pairs of the first of some nodes with others: with one of its own pipeline, and with one of another.
func kinds(some, others []string, pipelineOf map[string]int) []pair {
	var together, apart pair
	first := some[0]
	for _, other := range others {
		if other == first {
			continue
		}
		kind := &apart
		pipeline, placed := pipelineOf[first]
		if theirs, too := pipelineOf[other]; placed && too && pipeline == theirs {
			kind = &together
		}
		if kind.like++; kind.like == 1 {
			kind.nodes = [2]string{first, other}
		}
	}
	var pairs []pair
	for _, kind := range []pair{together, apart} {
		if kind.like > 0 {
			if kind.like *= len(some); others[0] == first {
				kind.like /= 2 // each was counted from both ends
			}
			pairs = append(pairs, kind)
		}
	}
	return pairs
}
