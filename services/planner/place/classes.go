package place

import (
	"cmp"
	"slices"
)

// Classes groups the nodes that may trade places without changing any pair's cost: they are of one kind (whatever the
// caller means by it; nil: all are), and their costs to everybody else are equal. Each class is ascending, classes go
// by their first node. O(nodes * classes) comparisons of dear pairs, most of which end at the first.
func Classes(nodes int, dear []Pair, kind []int) [][]int {
	links := make([][]Pair, nodes)
	for _, pair := range dear {
		links[pair.A] = append(links[pair.A], pair)
		links[pair.B] = append(links[pair.B], Pair{pair.B, pair.A, pair.Cost})
	}
	for _, list := range links {
		slices.SortFunc(list, func(a, b Pair) int { return cmp.Compare(a.B, b.B) })
	}
	var classes [][]int
	for node := range nodes {
		found := slices.IndexFunc(classes, func(class []int) bool {
			return (kind == nil || kind[class[0]] == kind[node]) && alike(links, class, node)
		})
		if found < 0 {
			classes = append(classes, []int{node})
			continue
		}
		classes[found] = append(classes[found], node)
	}
	return classes
}

// alike reports whether a node's costs equal those of a class's first member, to everybody else; and whether all pairs
// inside the class cost the same, without which three nodes could not trade places at will.
func alike(links [][]Pair, class []int, node int) bool {
	first := class[0]
	if len(class) > 1 && costTo(links[first], class[1]) != costTo(links[first], node) {
		return false
	}
	a, b := links[first], links[node]
	for {
		a, b = past(a, node), past(b, first)
		if len(a) == 0 || len(b) == 0 {
			return len(a) == len(b)
		}
		if a[0].B != b[0].B || a[0].Cost != b[0].Cost {
			return false
		}
		a, b = a[1:], b[1:]
	}
}

// past skips the link to one node where it comes next.
func past(links []Pair, node int) []Pair {
	if len(links) > 0 && links[0].B == node {
		return links[1:]
	}
	return links
}

func costTo(links []Pair, node int) float64 {
	at, found := slices.BinarySearchFunc(links, node,
		func(link Pair, node int) int { return cmp.Compare(link.B, node) })
	if !found {
		return 0
	}
	return links[at].Cost
}
