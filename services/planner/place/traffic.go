package place

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// traffic is who talks to whom in a step, by seat. Seats beyond the places are idle and talk to nobody.
type traffic struct {
	peers      [][]talk // the exchange of gradients
	next, prev []int    // the neighbours in the pipeline; -1 for none
	columns    [][]int  // seats with the same layers; a column's slowest exchange counts
	column     []int    // of a seat
	near       [][]int  // columns that a column's seats talk to, itself included
	edges      []edges  // boundaries between two stages, of all pipelines of one length together
	edge       []int    // of a seat and the next; -1 for none
}

// talk is what a seat exchanges with another in each step, there and back.
type talk struct {
	seat            int
	messages, bytes float64
}

// edges are the links that cross one boundary. Pipelines wait for one another (DT-FM eq. 4), so the slowest counts.
type edges struct {
	length int // of the pipelines
	seats  []int
	rounds float64 // how often a transfer, there and back, delays a step
}

// newTraffic works out who talks to whom. gradientBytes is per layer, rounds per pipeline length.
func newTraffic(places []Place, seats int, gradientBytes []float64, rounds func(length int) float64) *traffic {
	t := &traffic{
		peers: make([][]talk, seats), next: make([]int, seats), prev: make([]int, seats), edge: make([]int, seats),
		column: make([]int, seats),
	}
	t.chains(places, rounds)
	kinds := make([]kind, seats)
	for seat, place := range places {
		kinds[seat].layers = place.Layers
	}
	t.columns = grouped(kinds)
	for column, members := range t.columns {
		for _, seat := range members {
			t.column[seat] = column
		}
	}
	for _, segment := range segments(places, len(gradientBytes)) {
		bytes := 0.0
		for _, amount := range gradientBytes[segment.layers.First:segment.layers.End] {
			bytes += amount
		}
		t.exchange(segment.holders, bytes)
	}
	for column, members := range t.columns {
		near := []int{column}
		for _, seat := range members {
			for _, peer := range t.peers[seat] {
				near = append(near, t.column[peer.seat])
			}
		}
		slices.Sort(near)
		t.near = append(t.near, slices.Compact(near))
	}
	return t
}

// grid reports whether all pipelines are equal, and nobody idle.
func (t *traffic) grid() bool {
	for _, column := range t.columns {
		if len(column) != len(t.columns[0]) {
			return false
		}
	}
	for _, e := range t.edges {
		if e.length != len(t.columns) || len(e.seats) != len(t.columns[0]) {
			return false
		}
	}
	return len(t.edges) == len(t.columns)-1
}

func (t *traffic) chains(places []Place, rounds func(length int) float64) {
	var lengths []int // per pipeline
	for _, place := range places {
		lengths = append(lengths, make([]int, max(0, place.Pipeline+1-len(lengths)))...)
		lengths[place.Pipeline] = max(lengths[place.Pipeline], place.Stage+1)
	}
	at := map[Place]int{} // by pipeline and stage
	for seat, place := range places {
		at[Place{Pipeline: place.Pipeline, Stage: place.Stage}] = seat
	}
	boundary := map[[2]int]int{} // by length and stage
	for _, length := range slices.Compact(slices.Sorted(slices.Values(lengths))) {
		for stage := range length - 1 {
			boundary[[2]int{length, stage}] = len(t.edges)
			t.edges = append(t.edges, edges{length: length, rounds: rounds(length)})
		}
	}
	for seat := range t.next {
		t.next[seat], t.prev[seat], t.edge[seat] = -1, -1, -1
	}
	for seat, place := range places {
		if next, ok := at[Place{Pipeline: place.Pipeline, Stage: place.Stage + 1}]; ok {
			e := boundary[[2]int{lengths[place.Pipeline], place.Stage}]
			t.edges[e].seats = append(t.edges[e].seats, seat)
			t.next[seat], t.prev[next], t.edge[seat] = next, seat, e
		}
	}
}

// exchange lets the holders of a segment reduce it: each sends its part of the bytes, one of as many as there are
// holders, to every other and back (DT-FM eq. 2).
func (t *traffic) exchange(holders []int, bytes float64) {
	for _, a := range holders {
		for _, b := range holders {
			if a == b {
				continue
			}
			at := slices.IndexFunc(t.peers[a], func(peer talk) bool { return peer.seat == b })
			if at < 0 {
				at = len(t.peers[a])
				t.peers[a] = append(t.peers[a], talk{seat: b})
			}
			t.peers[a][at].messages += 2
			t.peers[a][at].bytes += 2 * bytes / float64(len(holders))
		}
	}
}

// segment is a maximal run of layers with the same holders, which are reduced together.
type segment struct {
	layers  estimate.Range
	holders []int
}

func segments(places []Place, layers int) []segment {
	holders := make([][]int, layers)
	for seat, place := range places {
		for layer := place.Layers.First; layer < place.Layers.End; layer++ {
			holders[layer] = append(holders[layer], seat)
		}
	}
	var runs []segment
	for layer, seats := range holders {
		if last := len(runs) - 1; layer > 0 && slices.Equal(runs[last].holders, seats) {
			runs[last].layers.End = layer + 1
			continue
		}
		runs = append(runs, segment{estimate.Range{First: layer, End: layer + 1}, seats})
	}
	return runs
}
