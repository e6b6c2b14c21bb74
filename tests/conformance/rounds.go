package main

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/tests/papers/schedule"
)

// proper checks that no device has two items in one round.
func proper(roundOf []int, devices [][]int) error {
	for device, items := range devices {
		seen := map[int]int{}
		for _, item := range items {
			if other, ok := seen[roundOf[item]]; ok {
				return fmt.Errorf("colours: device %d has items %d and %d in round %d", device, other, item,
					roundOf[item])
			}
			seen[roundOf[item]] = item
		}
	}
	return nil
}

func sumOfMaxima(roundOf []int, weights []int64) int64 {
	largest := make([]int64, slices.Max(roundOf)+1)
	sum := int64(0)
	for item, round := range roundOf {
		sum += max(0, weights[item]-largest[round])
		largest[round] = max(largest[round], weights[item])
	}
	return sum
}

// makespan checks that every item has all its time and no device two items at a time.
func makespan(pieces []schedule.Piece, weights []int64, devices [][]int) (end int64, err error) {
	left := slices.Clone(weights)
	for _, piece := range pieces {
		left[piece.Item] -= piece.End - piece.Start
		end = max(end, piece.End)
	}
	for item, weight := range left {
		if weight != 0 {
			return end, fmt.Errorf("schedule: item %d lacks %d of its %d", item, weight, weights[item])
		}
	}
	for device, items := range devices {
		var own []schedule.Piece
		for _, piece := range pieces {
			if slices.Contains(items, piece.Item) {
				own = append(own, piece)
			}
		}
		slices.SortFunc(own, func(a, b schedule.Piece) int { return int(a.Start - b.Start) })
		for i := 1; i < len(own); i++ {
			if own[i].Start < own[i-1].End {
				return end, fmt.Errorf("schedule: device %d has items %d and %d at a time", device, own[i-1].Item,
					own[i].Item)
			}
		}
	}
	return end, nil
}

// piece is how a stretch of a schedule is written.
type piece struct {
	Item  int   `json:"item"`
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

func written(pieces []schedule.Piece) []piece {
	list := make([]piece, len(pieces))
	for i := range pieces {
		list[i] = piece(pieces[i])
	}
	return list
}
