package protocol

import (
	"maps"
	"slices"
)

const (
	leastPatience = 30.0
	mostPatience  = 3600.0
)

// Patience returns for how many seconds a cluster waits for nodes that alone may hold its last steps, before it goes
// back: as long as these steps take to be trained again. A node that is back by then has saved that time, and a longer
// wait costs more than it can save.
func Patience(lost uint64, stepSeconds float64) float64 {
	return min(max(float64(lost)*stepSeconds, leastPatience), mostPatience)
}

// Reached returns how far training had come: by the words of the nodes that train, of which the lower median counts as
// in Possible. Without a word it is at most as far as the plan in force could come from its first step in the seconds that it
// may have been trained.
func Reached(steps []uint64, resume uint64, trained, stepSeconds float64) (step uint64, atMost bool) {
	switch {
	case len(steps) > 0:
		return max(resume, lowerMedian(steps)), false
	case trained > 0 && stepSeconds > 0:
		return resume + uint64(trained/stepSeconds), true
	}
	return resume, false
}

// Older returns the window of the steps that were trained under plans before the one in force.
func Older(resume uint64) Window { return Window{Last: resume + promisesApart} }

// OlderPoint returns the newest step of which every unit is claimed by nodes that one older plan trained. Claims are by
// the generation of that plan. Units of two plans do not go together, though their steps are equal: what was rolled
// back was trained again, and need not have come out the same.
func OlderPoint(units int, claims map[uint64][]Claim) (best Resume, ok bool) {
	for _, generation := range slices.Sorted(maps.Keys(claims)) {
		counted, _ := Uncontradicted(claims[generation], nil)
		point, _, whole := ResumePoint(units, counted)
		if whole && (!ok || point.Step >= best.Step) {
			best, ok = point, true
		}
	}
	return best, ok
}
