package protocol

import (
	"cmp"
	"slices"
)

// Claim is a version of a unit that a node says it holds from a membership that has ended.
type Claim struct {
	Node   string
	Unit   int
	Step   uint64
	Digest string
}

// version is a unit at a step.
type version struct {
	unit int
	step uint64
}

// Uncontradicted returns the claims that count beside what members hold, and the units of those that do not because
// nodes claim different bytes. A claim on what a member holds is not needed: the member's copy was compared with others
// all along. It counts with the digest that such a member tells. A version that only claims tell of counts with the digest
// that more than half of its claimants tell, as in a comparison of replicas. Without such a digest nobody could say which
// is right. O(claims log claims + holdings x claims).
func Uncontradicted(claims []Claim, held []Held) (count []Held, disputed []int) {
	told, votes, vouched := map[version]int{}, map[Claim]int{}, map[Claim]bool{}
	ballot := func(c Claim) Claim { return Claim{Unit: c.Unit, Step: c.Step, Digest: c.Digest} }
	for _, c := range claims {
		told[version{c.Unit, c.Step}]++
		votes[ballot(c)]++
		vouched[ballot(c)] = vouched[ballot(c)] || isHeld(held, version{c.Unit, c.Step}, c.Node)
	}
	decided := map[version]bool{}
	for _, c := range claims {
		at := version{c.Unit, c.Step}
		counts := vouched[ballot(c)] && !isHeld(held, at, c.Node)
		if !isHeld(held, at) {
			counts = 2*votes[ballot(c)] > told[at]
		}
		if counts {
			decided[at] = true
			count = append(count, Held{Node: c.Node, First: c.Unit, End: c.Unit + 1, Steps: []uint64{c.Step}})
		}
	}
	for at := range told {
		if !isHeld(held, at) && !decided[at] {
			disputed = append(disputed, at.unit)
		}
	}
	slices.SortFunc(count, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.First, b.First))
	})
	slices.Sort(disputed)
	return count, slices.Compact(disputed)
}

// isHeld reports whether anybody, or one of some nodes, holds a version.
func isHeld(held []Held, at version, nodes ...string) bool {
	return slices.ContainsFunc(held, func(h Held) bool {
		return h.First <= at.unit && at.unit < h.End && slices.Contains(h.Steps, at.step) && (len(nodes) == 0 || slices.Contains(nodes, h.Node))
	})
}

// Spare divides silent nodes into those that the others can do without and those that are the last to hold some unit.
// Nobody but a last holder can give its units back, so it is waited for. Units are what each node of the plan in force
// holds. The one first by name is kept if two silent nodes alone hold the same unit. O(nodes x units).
func Spare(units map[string][]int, silent []string) (spare, last []string) {
	holders := map[int]int{}
	for _, held := range units {
		for _, unit := range held {
			holders[unit]++
		}
	}
	for _, node := range slices.Backward(slices.Sorted(slices.Values(silent))) {
		if slices.ContainsFunc(units[node], func(unit int) bool { return holders[unit] == 1 }) {
			last = append(last, node)
			continue
		}
		for _, unit := range units[node] {
			holders[unit]--
		}
		spare = append(spare, node)
	}
	slices.Reverse(spare)
	slices.Reverse(last)
	return spare, last
}
