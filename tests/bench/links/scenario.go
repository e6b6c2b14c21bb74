package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/reknit/reknit/tests/links"
)

// scenario is a cluster that a node joins, drawn as the Chaos papers draw theirs (section VI-A): links of 100 to
// 1,000 Mbit/s and 10 to 20 ms.
type scenario struct {
	Seed       uint64
	Neighbours []links.Shape // from each neighbour to the node that joins
	Relays     []links.Shape // from each neighbour to the next, the last to the first
	Store      links.Shape   // of the shared store, to whoever writes and reads
}

const (
	fewestNeighbours, mostNeighbours  = 3, 6
	slowestMegabits, fastestMegabits  = 100, 1000
	shortestMicros, longestMicroDelay = 10_000, 20_000
)

// draw returns the scenario of a seed. Sizes of state share it.
func draw(seed uint64) scenario {
	random := rand.New(rand.NewPCG(seed, 0))
	shape := func() links.Shape {
		return links.Shape{
			MegabitsPerSecond: float64(slowestMegabits + random.IntN(fastestMegabits-slowestMegabits+1)),
			Delay:             time.Duration(shortestMicros+random.IntN(longestMicroDelay-shortestMicros+1)) * time.Microsecond,
		}
	}
	s := scenario{Seed: seed, Store: shape()}
	for range fewestNeighbours + random.IntN(mostNeighbours-fewestNeighbours+1) {
		s.Neighbours = append(s.Neighbours, shape())
		s.Relays = append(s.Relays, shape())
	}
	return s
}

func (s scenario) String() string {
	var neighbours []string
	for _, shape := range s.Neighbours {
		neighbours = append(neighbours, fmt.Sprintf("%.0f Mbit/s %.0f ms", shape.MegabitsPerSecond,
			shape.Delay.Seconds()*1e3))
	}
	return fmt.Sprintf("seed %d: %s; store %.0f Mbit/s", s.Seed, strings.Join(neighbours, ", "), s.Store.MegabitsPerSecond)
}
