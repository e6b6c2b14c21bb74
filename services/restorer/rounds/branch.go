package rounds

import (
	"math/bits"
	"slices"
)

// brancher colours items, the heaviest first and of those the one with the most rounds already ruled out, in every
// round that is open to it and then in a round of its own. As weights never grow, the first item of a round sets its
// length, and the cost of what is done is known. With equal weights the first descent is DSATUR.
type brancher struct {
	weights   []int64
	conflicts [][]int // per item, ascending
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
	shared := sharingOf(n, devices)
	b := &brancher{
		weights: weights, conflicts: make([][]int, n), taken: make([][]int, n), ruledOut: make([]int, n),
		roundOf: slices.Repeat([]int{-1}, n), effort: effort,
	}
	for item, others := range shared {
		b.conflicts[item] = others.members()
	}
	for _, others := range b.conflicts {
		b.most = max(b.most, len(others)+1)
	}
	for item := range b.taken {
		b.taken[item] = make([]int, b.most)
	}
	b.best.AtLeast = max(heaviestDevice(weights, devices), heavyClique(weights, shared))
	if b.branch(0) {
		b.best.AtLeast = b.best.Cost
	}
	return b.best
}

// items is a set of items, a bit each.
type items []uint64

func (s items) members() (list []int) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			list = append(list, i*64+bits.TrailingZeros64(word))
		}
	}
	return list
}

// sharingOf returns, per item, the others that share a device with it. O(items of all devices * n / 64).
func sharingOf(n int, devices [][]int) []items {
	shared, words := make([]items, n), (n+63)/64
	for item := range shared {
		shared[item] = make(items, words)
	}
	for _, list := range devices {
		on := make(items, words)
		for _, item := range list {
			on[item/64] |= 1 << (item % 64)
		}
		for _, item := range list {
			for i, word := range on {
				shared[item][i] |= word
			}
		}
	}
	for item := range shared {
		shared[item][item/64] &^= 1 << (item % 64)
	}
	return shared
}

// heavyClique returns the weight of a set of items of which any two share a device: those need a round each. It grows one
// from every item, taking the first that fit. O(n * items of a clique * n / 64).
func heavyClique(weights []int64, shared []items) (heaviest int64) {
	fit := make(items, (len(weights)+63)/64)
	for item, sum := range weights {
		copy(fit, shared[item])
		for i := range fit {
			for fit[i] != 0 {
				other := i*64 + bits.TrailingZeros64(fit[i])
				sum += weights[other]
				for k := i; k < len(fit); k++ {
					fit[k] &= shared[other][k]
				}
			}
		}
		heaviest = max(heaviest, sum)
	}
	return heaviest
}

// branch tries everything for the items still open, when those placed cost so much. It reports whether that is proved:
// false when effort ran out.
func (b *brancher) branch(cost int64) (proved bool) {
	if done, proved := b.done(cost); done {
		return proved
	}
	item := b.next()
	if item < 0 {
		b.best.RoundOf, b.best.Rounds, b.best.Cost = slices.Clone(b.roundOf), b.rounds, cost
		return true
	}
	proved = true
	for round := 0; round < b.rounds; round++ {
		if done, rest := b.done(cost); done {
			return proved && rest // before the item is put anywhere: with thousands of rounds that is most of the work
		}
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

// done reports whether nothing more is to be tried where those placed cost so much, and whether that is because nothing
// could be better, or because effort ran out.
func (b *brancher) done(cost int64) (done, proved bool) {
	if b.best.RoundOf == nil {
		return false, false
	}
	if cost >= b.best.Cost || b.best.Cost == b.best.AtLeast {
		return true, true
	}
	return b.looked > b.effort, false
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
