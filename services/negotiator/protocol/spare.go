package protocol

import "slices"

// Sparing returns who gives what where some are not to be counted on: of these only units that nobody else holds.
func Sparing(spared []string, held map[string][]int) map[string][]int {
	if len(spared) == 0 {
		return held
	}
	elsewhere, giving := map[int]bool{}, map[string][]int{}
	for node, units := range held {
		if slices.Contains(spared, node) {
			continue
		}
		giving[node] = units
		for _, unit := range units {
			elsewhere[unit] = true
		}
	}
	for _, node := range spared {
		if alone := slices.DeleteFunc(slices.Clone(held[node]), func(unit int) bool { return elsewhere[unit] }); len(alone) > 0 {
			giving[node] = alone
		}
	}
	return giving
}
