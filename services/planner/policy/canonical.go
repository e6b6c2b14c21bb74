package policy

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// Canonical is a situation by what its nodes are, not what they are called: nodes are numbered, pipelines sorted, and the
// time between failures, which is an estimate, is a power of two. Losing either of two nodes that stand in equal places
// gives one canonical situation, and so one answer: that of a failure class (pipeline type, stage).
type Canonical struct {
	Situation
	names []string // by number
	kept  []Pipeline
}

// Canonical numbers the nodes: those of the plan in force in the order of its pipelines, hit ones first, then by length,
// batch, split, memory and what is empty; then the others, the largest first; lost nodes last. Equals keep their order.
// O(nodes log nodes).
func (s Situation) Canonical() Canonical {
	c := Canonical{Situation: s, kept: s.Current}
	index := make(map[string]int, len(s.Nodes))
	for i, node := range s.Nodes {
		index[node] = i
	}
	isEmpty := make([]bool, len(s.Nodes))
	for _, node := range s.Empty {
		if i, alive := index[node]; alive {
			isEmpty[i] = true
		}
	}
	order, lost := c.sortPipelines(index, isEmpty)
	number := make(map[string]string, len(s.Nodes)+len(lost))
	place := make([]int, len(s.Nodes)) // number by index
	c.Nodes, c.MemoryBytes, c.Speed, c.Empty = nil, nil, nil, nil
	for n, i := range order {
		numeral := strconv.Itoa(n)
		number[s.Nodes[i]], place[i] = numeral, n
		c.Nodes, c.MemoryBytes, c.names = append(c.Nodes, numeral), append(c.MemoryBytes, s.MemoryBytes[i]), append(c.names, s.Nodes[i])
		if s.Speed != nil {
			c.Speed = append(c.Speed, s.Speed[i])
		}
		if isEmpty[i] {
			c.Empty = append(c.Empty, numeral)
		}
	}
	for _, node := range lost {
		number[node] = strconv.Itoa(len(c.names))
		c.names = append(c.names, node)
	}
	c.Current = renamed(c.Current, func(node string) string { return number[node] })
	c.Network.Dear, c.Network.Links = numbered(s.Network.Dear, place), numberedLinks(s.Network.Links, place)
	c.SecondsBetweenFailures = octave(s.SecondsBetweenFailures)
	return c
}

// sortPipelines sorts the plan in force, and returns the indices of the nodes there are and the names of the lost ones, in
// canonical order.
func (c *Canonical) sortPipelines(index map[string]int, isEmpty []bool) (order []int, lost []string) {
	const gone = -2
	traits := make([][]int64, len(c.Current)) // what tells a pipeline from another
	for p, pipeline := range c.Current {
		list := []int64{0, int64(len(pipeline.Stages)), int64(pipeline.MicroBatches)}
		for _, stage := range pipeline.Stages {
			list = append(list, int64(stage.Layers.End))
			if i, alive := index[stage.Node]; alive {
				list = append(list, c.traits(i, isEmpty)...)
			} else {
				list[0]-- // hit pipelines first
				list = append(list, gone, gone)
			}
		}
		traits[p] = list
	}
	sorted := upTo(len(c.Current))
	slices.SortStableFunc(sorted, func(a, b int) int { return slices.Compare(traits[a], traits[b]) })
	isPlaced, pipelines := make([]bool, len(c.Nodes)), make([]Pipeline, len(c.Current))
	for at, p := range sorted {
		pipelines[at] = c.Current[p]
		for _, stage := range c.Current[p].Stages {
			if i, alive := index[stage.Node]; alive {
				order, isPlaced[i] = append(order, i), true
			} else {
				lost = append(lost, stage.Node)
			}
		}
	}
	c.Current = pipelines
	idle := slices.DeleteFunc(upTo(len(c.Nodes)), func(i int) bool { return isPlaced[i] })
	slices.SortStableFunc(idle, func(a, b int) int { return slices.Compare(c.traits(b, isEmpty), c.traits(a, isEmpty)) })
	return append(order, idle...), lost
}

// traits tell nodes apart: memory and whether a node is empty, and speed.
func (s Situation) traits(node int, isEmpty []bool) []int64 {
	memory, speed := 2*s.MemoryBytes[node], int64(0)
	if isEmpty[node] {
		memory++
	}
	if s.Speed != nil {
		speed = int64(math.Float64bits(s.Speed[node])) // in the order of the speeds, as these are above zero
	}
	return []int64{memory, speed}
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// numbered is pairs of indices as pairs of numbers, in order.
func numbered(pairs [][2]int, place []int) [][2]int {
	var list [][2]int
	for _, pair := range pairs {
		a, b := place[pair[0]], place[pair[1]]
		list = append(list, [2]int{min(a, b), max(a, b)})
	}
	slices.SortFunc(list, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return list
}

func numberedLinks(links []Link, place []int) []Link {
	var list []Link
	for _, link := range links {
		link.From, link.To = place[link.From], place[link.To]
		list = append(list, link)
	}
	slices.SortFunc(list, func(a, b Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return list
}

// octave is the nearest power of two.
func octave(x float64) float64 { return math.Exp2(math.Round(math.Log2(x))) }

func renamed(pipelines []Pipeline, name func(string) string) []Pipeline {
	list := make([]Pipeline, len(pipelines))
	for p, pipeline := range pipelines {
		list[p] = Pipeline{MicroBatches: pipeline.MicroBatches, Stages: slices.Clone(pipeline.Stages)}
		for st := range list[p].Stages {
			list[p].Stages[st].Node = name(list[p].Stages[st].Node)
		}
	}
	return list
}

// Restored gives a candidate's nodes their names back. Where it keeps the plan in force, it keeps its order too.
func (c Canonical) Restored(candidate Candidate) Candidate {
	name := func(numeral string) string {
		number, _ := strconv.Atoi(numeral)
		return c.names[number]
	}
	if slices.EqualFunc(candidate.Pipelines, c.Current, samePipeline) {
		candidate.Pipelines = c.kept
	} else {
		candidate.Pipelines = renamed(candidate.Pipelines, name)
	}
	candidate.Reroutes = slices.Clone(candidate.Reroutes)
	for i, reroute := range candidate.Reroutes {
		candidate.Reroutes[i].From, candidate.Reroutes[i].To = name(reroute.From), name(reroute.To)
	}
	peaks := make(map[string]int64, len(candidate.PeakBytes))
	for numeral, peak := range candidate.PeakBytes {
		peaks[name(numeral)] = peak
	}
	candidate.PeakBytes = peaks
	classes := make([][]string, len(candidate.Classes))
	for i, class := range candidate.Classes {
		for _, numeral := range class {
			classes[i] = append(classes[i], name(numeral))
		}
	}
	candidate.Classes = classes
	return candidate
}

// Same reports whether two situations are equal in all that a policy may look at. What there is much of goes first and
// quickly; the rest, and whatever a situation may come to hold, is compared in depth.
func (c Canonical) Same(other Canonical) bool {
	a, b := c.Situation, other.Situation
	if !slices.EqualFunc(a.Current, b.Current, samePipeline) || !slices.Equal(a.Nodes, b.Nodes) ||
		!slices.Equal(a.MemoryBytes, b.MemoryBytes) || !slices.Equal(a.Network.Dear, b.Network.Dear) {
		return false
	}
	a.Current, a.Nodes, a.MemoryBytes, a.Network.Dear = nil, nil, nil, nil
	b.Current, b.Nodes, b.MemoryBytes, b.Network.Dear = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

func samePipeline(a, b Pipeline) bool {
	return a.MicroBatches == b.MicroBatches && slices.Equal(a.Stages, b.Stages)
}
