package policy

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// Canonical is a situation by what its nodes are, not what they are called: nodes are numbered, pipelines sorted, and
// the time between failures, which is an estimate, is a power of two. Losing either of two nodes that stand in equal
// places gives one canonical situation, and so one answer: that of a failure class (pipeline type, stage).
type Canonical struct {
	Situation
	names []string // by number
	kept  []Pipeline
}

// Canonical numbers the nodes: those of the plan in force in the order of its pipelines, hit ones first, then by
// length, batch, split, memory, what is empty and partitions; then the others, the largest first; lost nodes last.
// Equals keep their order. O(nodes log nodes).
func (s Situation) Canonical() Canonical {
	c := Canonical{Situation: s, kept: s.Current}
	c.Correction, c.OverheadSeconds, c.OwnSeconds = 0, 0, 0 // only Weigh has a use for them, and they are known no sooner than the question
	isEmpty := make([]bool, len(s.Nodes))
	index := make(map[string]int, len(s.Nodes))
	for i, node := range s.Nodes {
		index[node] = i
	}
	for _, node := range s.Empty {
		if i, alive := index[node]; alive {
			isEmpty[i] = true
		}
	}
	seats := s.seated(index)
	sorted := s.sorted(seats, isEmpty)
	order := s.order(sorted, seats, isEmpty)
	place := make([]int, len(order)) // number by index
	c.Nodes, c.MemoryBytes, c.names = make([]string, len(order)), make([]int64, len(order)), make([]string, len(order))
	c.Speed, c.Empty = nil, nil
	for number, i := range order {
		place[i], c.Nodes[number], c.MemoryBytes[number], c.names[number] = number, numeral(number), s.MemoryBytes[i],
			s.Nodes[i]
		if s.Speed != nil {
			c.Speed = append(c.Speed, s.Speed[i])
		}
		if isEmpty[i] {
			c.Empty = append(c.Empty, c.Nodes[number])
		}
	}
	c.Current = make([]Pipeline, len(sorted))
	for at, p := range sorted {
		pipeline := s.Current[p]
		pipeline.Stages = slices.Clone(pipeline.Stages)
		for st, i := range seats[p] {
			if i == lost {
				pipeline.Stages[st].Node = numeral(len(c.names))
				c.names = append(c.names, s.Current[p].Stages[st].Node)
			} else {
				pipeline.Stages[st].Node = c.Nodes[place[i]]
			}
		}
		c.Current[at] = pipeline
	}
	c.Network.Dear, c.Network.Links = numbered(s.Network.Dear, place), numberedLinks(s.Network.Links, place)
	c.Network.Sites = make([]int, len(s.Network.Sites))
	for i, site := range s.Network.Sites {
		c.Network.Sites[place[i]] = site
	}
	// No plan depends on the time until the return, nor on what was missing before. Prices are the same for all plans that move
	// something, so that they are weighed with them and found without.
	c.SwitchSeconds, c.RestartSeconds = 0, 0
	c.SecondsBetweenFailures, c.SecondsUntilReturn, c.Relayed = octave(s.SecondsBetweenFailures), 0, false
	return c
}

// Halved is the situation with half the time between failures.
func (c Canonical) Halved() Canonical {
	c.SecondsBetweenFailures /= 2
	return c
}

const lost = -1

// seated returns the index of the node of each stage of the plan in force, or lost.
func (s Situation) seated(index map[string]int) [][]int {
	seats := make([][]int, len(s.Current))
	for p, pipeline := range s.Current {
		seats[p] = make([]int, len(pipeline.Stages))
		for st, stage := range pipeline.Stages {
			if i, alive := index[stage.Node]; alive {
				seats[p][st] = i
			} else {
				seats[p][st] = lost
			}
		}
	}
	return seats
}

// sorted returns the pipelines of the plan in force by what tells one from another.
func (s Situation) sorted(seats [][]int, isEmpty []bool) []int {
	all := make([][]int64, len(s.Current))
	for p, pipeline := range s.Current {
		list := make([]int64, 3, 3+3*len(pipeline.Stages))
		list[1], list[2] = int64(len(pipeline.Stages)), int64(pipeline.MicroBatches)
		for st, i := range seats[p] {
			memory, speed := int64(lost), int64(lost)
			if i == lost {
				list[0]-- // hit pipelines first
			} else {
				memory, speed = s.traits(i, isEmpty)
			}
			list = append(list, int64(pipeline.Stages[st].Layers.End), memory, speed)
		}
		for _, partition := range pipeline.Partitions {
			list = append(list, int64(partition))
		}
		all[p] = list
	}
	sorted := upTo(len(s.Current))
	slices.SortStableFunc(sorted, func(a, b int) int { return slices.Compare(all[a], all[b]) })
	return sorted
}

// order returns the indices of the nodes there are by number.
func (s Situation) order(sorted []int, seats [][]int, isEmpty []bool) []int {
	order, isPlaced := make([]int, 0, len(s.Nodes)), make([]bool, len(s.Nodes))
	for _, p := range sorted {
		for _, i := range seats[p] {
			if i != lost {
				order, isPlaced[i] = append(order, i), true
			}
		}
	}
	idle := slices.DeleteFunc(upTo(len(s.Nodes)), func(i int) bool { return isPlaced[i] })
	slices.SortStableFunc(idle, func(a, b int) int {
		memory, speed := s.traits(a, isEmpty)
		others, its := s.traits(b, isEmpty)
		return cmp.Or(cmp.Compare(others, memory), cmp.Compare(its, speed))
	})
	return append(order, idle...)
}

// numerals are the first numbers as names: a plan for thousands of nodes has thousands of them.
var numerals = func() (list [4096]string) {
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}()

func numeral(number int) string {
	if number < len(numerals) {
		return numerals[number]
	}
	return strconv.Itoa(number)
}

// traits tell nodes apart: memory and whether a node is empty, and speed.
func (s Situation) traits(node int, isEmpty []bool) (memory, speed int64) {
	memory = 2 * s.MemoryBytes[node]
	if isEmpty[node] {
		memory++
	}
	if s.Speed != nil {
		speed = int64(math.Float64bits(s.Speed[node])) // in the order of the speeds, as these are above zero
	}
	return memory, speed
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
		list[p] = pipeline
		list[p].Stages = slices.Clone(pipeline.Stages)
		for st := range list[p].Stages {
			list[p].Stages[st].Node = name(list[p].Stages[st].Node)
		}
	}
	return list
}

// Restored gives a candidate's nodes their names back. A candidate that keeps the plan in force keeps its order too.
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
	candidate.Idle = slices.Clone(candidate.Idle)
	for i, idle := range candidate.Idle {
		candidate.Idle[i].Node = name(idle.Node)
	}
	return candidate
}

// Same reports whether two situations are equal in all that a policy may look at. Large parts are compared first and
// quickly. The rest, and whatever a situation may come to hold, is compared in depth.
func (c Canonical) Same(other Canonical) bool {
	a, b := c.Situation, other.Situation
	if !slices.EqualFunc(a.Current, b.Current, samePipeline) || !slices.Equal(a.Nodes, b.Nodes) ||
		!slices.Equal(a.MemoryBytes, b.MemoryBytes) || !slices.Equal(a.Speed, b.Speed) ||
		!slices.Equal(a.Network.Dear, b.Network.Dear) || !slices.Equal(a.Network.Links, b.Network.Links) {
		return false
	}
	for _, s := range []*Situation{&a, &b} {
		s.Current, s.Nodes, s.MemoryBytes, s.Speed, s.Network.Dear, s.Network.Links = nil, nil, nil, nil, nil, nil
		s.Find = nil // whoever it is, the answers are the same
	}
	return reflect.DeepEqual(a, b)
}

func samePipeline(a, b Pipeline) bool {
	return a.MicroBatches == b.MicroBatches && slices.Equal(a.Stages, b.Stages) &&
		slices.Equal(a.Partitions, b.Partitions)
}
