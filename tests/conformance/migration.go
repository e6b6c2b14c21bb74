package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/migrate"
	"github.com/reknit/reknit/tests/papers/assignment"
)

type migrationInput struct {
	LayerBytes     layerBytes `json:"layer_bytes"`
	SurvivorLayers []*[2]int  `json:"survivor_layers"` // null: holds nothing
	NewSlotLayers  []*[2]int  `json:"new_slot_layers"` // null: idle
}

func solveMigration(in migrationInput) (answer, error) {
	problem := migrate.Problem{LayerBytes: in.LayerBytes}
	for _, held := range in.SurvivorLayers {
		problem.Survivors = append(problem.Survivors, migrate.Survivor{Holds: ranges(held)})
	}
	for _, needed := range in.NewSlotLayers {
		problem.Places = append(problem.Places, migrate.Place{Needs: ranges(needed), Group: migrate.Anyone})
	}
	unit := problem
	unit.LayerBytes = slices.Repeat([]int64{1}, len(in.LayerBytes))
	fewestLayers, unitErr := migrate.LeastTotal(unit)
	fewestBytes, totalErr := migrate.LeastTotal(problem)
	fastest, fastestErr := leastLargest(problem)
	if err := errors.Join(unitErr, totalErr, fastestErr); err != nil {
		return nil, err
	}
	for _, placeOf := range [][]int{fewestLayers.PlaceOf, fewestBytes.PlaceOf, fastest} {
		if err := once(placeOf, len(in.NewSlotLayers)); err != nil {
			return nil, fmt.Errorf("matching: %w", err)
		}
	}
	listed := make([]int, len(in.SurvivorLayers))
	for i := range listed {
		listed[i] = i
		if i >= len(in.NewSlotLayers) {
			listed[i] = migrate.Idle
		}
	}
	layersFetched, _ := fetched(unit, fewestLayers.PlaceOf)
	bytes, _ := fetched(problem, fewestBytes.PlaceOf)
	bytesOfFastest, largest := fetched(problem, fastest)
	layersAsListed, _ := fetched(unit, listed)
	return answer{
		"min_total_layers_fetched": layersFetched, "min_total_bytes_fetched": bytes, "matching": fewestBytes.PlaceOf,
		"min_max_bytes_per_node": largest, "min_total_bytes_given_min_max": bytesOfFastest, "fastest_matching": fastest,
		"total_layers_if_kept_in_listed_order": layersAsListed,
		"layers_without_any_survivor":          append([]int{}, fewestBytes.Orphans...),
	}, nil
}

// leastLargest is who takes which place where the one who fetches most is to fetch as little as possible. The restorer
// has the sum be least.
func leastLargest(problem migrate.Problem) (placeOf []int, err error) {
	cost := make([][]int64, len(problem.Survivors))
	for i := range cost {
		cost[i] = make([]int64, len(problem.Survivors)) // columns beyond the places are for the idle
		for j, place := range problem.Places {
			cost[i][j] = missing(problem, i, place)
		}
	}
	found, err := assignment.LeastLargest(cost)
	for i, place := range found.ColumnOf {
		if place >= len(problem.Places) {
			found.ColumnOf[i] = migrate.Idle
		}
	}
	return found.ColumnOf, err
}

// layerBytes is a list, or one size for all layers: {"all": bytes, "count": layers}.
type layerBytes []int64

func (l *layerBytes) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*[]int64)(l)); err == nil {
		return nil
	}
	var equal struct {
		All   int64
		Count int
	}
	if err := json.Unmarshal(data, &equal); err != nil {
		return err
	}
	*l = slices.Repeat([]int64{equal.All}, equal.Count)
	return nil
}

func ranges(interval *[2]int) []layers.Range {
	if interval == nil {
		return nil
	}
	return []layers.Range{{First: interval[0], End: interval[1]}}
}

// fetched is what all and what one at most must fetch when survivors take these places.
func fetched(problem migrate.Problem, placeOf []int) (total, largest int64) {
	for i, place := range placeOf {
		if place == migrate.Idle {
			continue
		}
		bytes := missing(problem, i, problem.Places[place])
		total, largest = total+bytes, max(largest, bytes)
	}
	return total, largest
}

// missing is how many bytes a survivor lacks for a place.
func missing(problem migrate.Problem, survivor int, place migrate.Place) (bytes int64) {
	for _, needed := range place.Needs {
		for layer := needed.First; layer < needed.End; layer++ {
			held := slices.ContainsFunc(problem.Survivors[survivor].Holds, func(r layers.Range) bool {
				return r.First <= layer && layer < r.End
			})
			if !held {
				bytes += problem.LayerBytes[layer]
			}
		}
	}
	return bytes
}
