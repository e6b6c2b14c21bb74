package rounds

import "slices"

// brancher colours items, the heaviest first and of those the one with the most rounds already ruled out, in every
// round that is open to it and then in a round of its own. As weights never grow, the first item of a round sets its
// length, and the cost of what is done is known. With equal weights the first descent is DSATUR.
type brancher struct {
	weights   []int64
	conflicts [][]int // per item
	taken     [][]int // per item and round: how many of its conflicts are there
	ruledOut  []int   // per item: rounds taken
	roundOf   []int   // -1 while open
	rounds    int
	most      int // rounds that can be needed
	best      Colouring
	effort    int // items that may be looked at
	looked    int
}

func colour(weights []int64, devices [][]int, effort int) Colouring {
	n := len(weights)
	b := &brancher{
		weights: weights, conflicts: conflictsOf(n, devices), taken: make([][]int, n), ruledOut: make([]int, n),
		roundOf: slices.Repeat([]int{-1}, n), effort: effort,
	}
	for _, others := range b.conflicts {
		b.most = max(b.most, len(others)+1)
	}
	for item := range b.taken {
		b.taken[item] = make([]int, b.most)
	}
	b.best.AtLeast = max(heaviestDevice(weights, devices), b.heavyClique())
	if b.branch(0) {
		b.best.AtLeast = b.best.Cost
	}
	return b.best
}

// conflictsOf lists, per item, the others that share a device with it, ascending.
func conflictsOf(n int, devices [][]int) [][]int {
	conflicts := make([][]int, n)
	for _, items := range devices {
		for _, item := range items {
			conflicts[item] = append(conflicts[item], items...)
		}
	}
	for item, others := range conflicts {
		slices.Sort(others)
		others = slices.Compact(others)
		conflicts[item] = slices.DeleteFunc(others, func(other int) bool { return other == item })
	}
	return conflicts
}

// heavyClique returns the weight of a set of items of which any two conflict: those need a round each. It grows one
// from every item, taking the first that fit.
func (b *brancher) heavyClique() int64 {
	heaviest := int64(0)
	for item := range b.weights {
		clique, sum := []int{item}, b.weights[item]
		for _, other := range b.conflicts[item] {
			fits := !slices.ContainsFunc(clique, func(member int) bool {
				if member == item {
					return false
				}
				_, found := slices.BinarySearch(b.conflicts[other], member)
				return !found
			})
			if fits {
				clique, sum = append(clique, other), sum+b.weights[other]
			}
		}
		heaviest = max(heaviest, sum)
	}
	return heaviest
}

// branch tries everything for the items still open, when those placed cost so much. It reports whether that is proved:
// false when effort ran out.
func (b *brancher) branch(cost int64) bool {
	found := b.best.RoundOf != nil
	if found && (cost >= b.best.Cost || b.best.Cost == b.best.AtLeast) {
		return true
	}
	if found && b.looked > b.effort {
		return false
	}
	item := b.next()
	if item < 0 {
		b.best.RoundOf, b.best.Rounds, b.best.Cost = slices.Clone(b.roundOf), b.rounds, cost
		return true
	}
	proved := true
	for round := 0; round < b.rounds; round++ {
		if b.taken[item][round] == 0 {
			b.place(item, round, 1)
			proved = b.branch(cost) && proved
			b.place(item, round, -1)
		}
	}
	if b.rounds == b.most {
		return proved // an item beyond fits into an earlier, longer round
	}
	b.rounds++
	b.place(item, b.rounds-1, 1)
	proved = b.branch(cost+b.weights[item]) && proved
	b.place(item, b.rounds-1, -1)
	b.rounds--
	return proved
}

// next picks the open item to place, or -1.
func (b *brancher) next() int {
	b.looked += len(b.weights)
	best := -1
	for item, round := range b.roundOf {
		if round < 0 && (best < 0 || b.before(item, best)) {
			best = item
		}
	}
	return best
}

func (b *brancher) before(item, other int) bool {
	if b.weights[item] != b.weights[other] {
		return b.weights[item] > b.weights[other]
	}
	if b.ruledOut[item] != b.ruledOut[other] {
		return b.ruledOut[item] > b.ruledOut[other]
	}
	return len(b.conflicts[item]) > len(b.conflicts[other])
}

// place puts item into round (by 1) or takes it out again (by -1).
func (b *brancher) place(item, round, by int) {
	b.roundOf[item] = round
	if by < 0 {
		b.roundOf[item] = -1
	}
	for _, other := range b.conflicts[item] {
		before := b.taken[other][round] > 0
		b.taken[other][round] += by
		if after := b.taken[other][round] > 0; after != before {
			b.ruledOut[other] += by
		}
	}
}
