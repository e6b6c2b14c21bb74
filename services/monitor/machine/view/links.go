package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

// Links are the links of a cluster for readers: each, or those between groups of nodes.
type Links struct {
	Groups []Group       `json:"groups"` // a node each where there are few
	By     string        `json:"by"`     // what a group is: node, site, stage or all
	Pairs  []Pair        `json:"pairs"`
	Bad    []Pair        `json:"bad"`             // between nodes: lost or cut ones, at most mostNames
	Usual  *events.Usual `json:"usual,omitempty"` // what the others are like, where only those are listed that are not
}

// Group is nodes that stand together.
type Group struct {
	Name   string         `json:"name"`
	Nodes  int            `json:"nodes"`
	States map[string]int `json:"states"`
}

// Pair is the links between two groups, or within one. Its figures are the median of those measured, in both directions. They are the usual
// figures from a to b if groups are sites and a request told the usual link: the links that are listed are others.
type Pair struct {
	A                string  `json:"a"`
	B                string  `json:"b"`
	RoundTripSeconds float64 `json:"roundTripSeconds,omitempty"`
	BytesPerSecond   float64 `json:"bytesPerSecond,omitempty"`
	Measured         int     `json:"measured,omitempty"` // directions that are listed
	Lost             int     `json:"lost,omitempty"`
	Cut              int     `json:"cut,omitempty"` // on purpose
}

func linksOf(nodes []overlay.Node, links []overlay.Link, usual *events.Usual) Links {
	by, group := grouping(nodes)
	told := Links{By: by, Usual: usual, Groups: groupsOf(nodes, group), Pairs: []Pair{}, Bad: []Pair{}}
	between := map[events.Pair][]overlay.Link{}
	for _, link := range links {
		from, to := group[link.From], group[link.To]
		if from == "" || to == "" || by == "node" && from == to {
			continue
		}
		pair := events.PairOf(from, to)
		between[pair] = append(between[pair], link)
		if by != "node" && (link.Lost || link.Disconnected) && len(told.Bad) < mostNames {
			told.Bad = append(told.Bad, pairOf(events.Pair{A: link.From, B: link.To}, []overlay.Link{link}))
		}
	}
	isTold := by == "site" && usual != nil
	if isTold {
		isThere := func(site string) bool {
			return slices.ContainsFunc(told.Groups, func(group Group) bool { return group.Name == site })
		}
		for _, ends := range usual.Between {
			if pair := events.PairOf(ends.From, ends.To); isThere(pair.A) && isThere(pair.B) {
				between[pair] = between[pair][:] // with as many links as are listed, or none
			}
		}
	}
	order := func(a, b events.Pair) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) }
	for _, pair := range slices.SortedFunc(maps.Keys(between), order) {
		p := pairOf(pair, between[pair])
		if isTold { // what is listed are exceptions
			median := usual.Link(pair.A, pair.B)
			p.RoundTripSeconds, p.BytesPerSecond = median.RoundTripSeconds, median.BandwidthBytesPerSecond
		}
		told.Pairs = append(told.Pairs, p)
	}
	return told
}

// grouping says which group each node is in: few nodes stand alone, many stand with their site, or where that tells nothing
// with their stage.
func grouping(nodes []overlay.Node) (by string, group map[string]string) {
	name := map[string]func(overlay.Node) string{
		"node": func(n overlay.Node) string { return n.Node },
		"site": func(n overlay.Node) string { return cmp.Or(n.Site, "no site") },
		"stage": func(n overlay.Node) string {
			if n.Stage == nil {
				return "no place"
			}
			return fmt.Sprintf("stage %d", *n.Stage)
		},
		"all": func(overlay.Node) string { return "all nodes" },
	}
	for _, by := range []string{"node", "site", "stage"} {
		sizes := map[string]int{}
		group := map[string]string{}
		for _, node := range nodes {
			group[node.Node] = name[by](node)
			sizes[group[node.Node]]++
		}
		if len(sizes) <= mostDrawn && (by == "node" || len(sizes) > 1) {
			return by, group
		}
	}
	group = map[string]string{}
	for _, node := range nodes {
		group[node.Node] = name["all"](node)
	}
	return "all", group
}

func groupsOf(nodes []overlay.Node, group map[string]string) []Group {
	all, at := []Group{}, map[string]int{}
	for _, node := range nodes {
		name := group[node.Node]
		i, known := at[name]
		if !known {
			i = len(all)
			at[name], all = i, append(all, Group{Name: name, States: map[string]int{}})
		}
		all[i].Nodes++
		all[i].States[node.State]++
	}
	slices.SortStableFunc(all, func(a, b Group) int { return cmp.Or(len(a.Name)-len(b.Name), cmp.Compare(a.Name, b.Name)) })
	return all
}

func pairOf(pair events.Pair, links []overlay.Link) Pair {
	told := Pair{A: pair.A, B: pair.B}
	var trips, rates []float64
	for _, link := range links {
		switch {
		case link.Disconnected:
			told.Cut++
		case link.Lost:
			told.Lost++
		case link.BandwidthBytesPerSecond > 0:
			trips, rates = append(trips, link.RoundTripSeconds), append(rates, link.BandwidthBytesPerSecond)
		}
	}
	if told.Measured = len(rates); told.Measured > 0 {
		slices.Sort(trips)
		slices.Sort(rates)
		told.RoundTripSeconds, told.BytesPerSecond = trips[len(trips)/2], rates[(len(rates)-1)/2]
	}
	return told
}
