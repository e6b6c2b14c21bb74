package machine

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/estimate"
)

// runs are the first layers of what policies see as one layer, and the number of layers behind: layers that are tied
// stay in one stage, all others are runs of one.
type runs []int

func runsOf(job events.Job) runs {
	var firsts runs
	tied := job.Tied
	for layer := 0; layer < len(job.Layers); layer++ {
		firsts = append(firsts, layer)
		if len(tied) > 0 && tied[0].First == layer {
			layer, tied = tied[0].End-1, tied[1:]
		}
	}
	return append(firsts, len(job.Layers))
}

// of returns the runs in a range of layers. It fails where the range cuts one.
func (r runs) of(layers events.Range) (estimate.Range, error) {
	if isTied := len(r) <= r[len(r)-1]; !isTied {
		return estimate.Range(layers), nil
	}
	first, begins := slices.BinarySearch(r, layers.First)
	end, ends := slices.BinarySearch(r, layers.End)
	if !begins || !ends {
		return estimate.Range{}, fmt.Errorf("layers %d to %d: expected the layers that are tied in one stage",
			layers.First, layers.End)
	}
	return estimate.Range{First: first, End: end}, nil
}

// layers returns the layers of a range of runs.
func (r runs) layers(of estimate.Range) events.Range {
	return events.Range{First: r[of.First], End: r[of.End]}
}
