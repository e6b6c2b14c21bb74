// Package migrate decides who becomes whom: which survivor takes which place of the next plan, so that as little as
// possible has to be fetched (Chameleon, weight migration in section IV).
//
// The only things that matter are what a node holds and what a place needs. Survivors that hold the same are one kind,
// places that need the same are one kind, and between kinds it is a small transportation problem whose size does not
// grow with the cluster.
package migrate

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/reknit/reknit/services/restorer/layers"
)

// Anyone is the group of a place that every survivor may take.
const Anyone = -1

// Idle is the place of a survivor that the plan has no use for.
const Idle = -1

// Survivor is a node that can take a place.
type Survivor struct {
	Holds []layers.Range // empty for a node that has just joined
	Group int            // survivors of one group may take one another's places
}

// Place is a stage of a pipeline of the next plan.
type Place struct {
	Needs []layers.Range // empty for a place without work
	Group int            // the only group that may take it, or Anyone
}

// Problem is a set of survivors and the places of the next plan, of which there are at most as many.
type Problem struct {
	LayerBytes []int64 // what must be fetched with each layer, all of it together below 2^60 for all survivors
	Survivors  []Survivor
	Places     []Place

	// Seconds tells, for layers that are missing, ascending, how long each survivor takes to fetch them over its own
	// links; nil: a second for 1e9 bytes.
	Seconds func(missing []int) (of func(survivor int) float64)
}

// Migration is who takes which place, and what that costs. Per survivor in the order of the problem.
type Migration struct {
	PlaceOf      []int   // index of the place, or Idle
	Missing      [][]int // layers to fetch, ascending
	Bytes        int64   // fetched by all
	LargestBytes int64   // fetched by the one who fetches most
	Nanoseconds  int64   // that the one takes who fetches longest
	Layers       int     // fetched by all
	Orphans      []int   // layers no survivor holds, ascending: they must come from a snapshot
}

// LeastTotal returns a migration that fetches the fewest bytes, and of those one in which the node that fetches longest
// takes as little time as possible, because the restoration ends with it. Bytes come first, as in the paper: they are
// certain and load everybody's links, while seconds come from measurements and are those of a node that fetches while
// nobody else does.
//
// Among survivors of a kind the first in the list takes the first place of a kind. It fails when a range or a size is
// out of bounds, when there are more places than survivors, and with ErrNoMatching when the groups leave a place that
// nobody may take.
//
// The paper matches each survivor with each place by Kuhn-Munkres, in O(n^3) for n survivors. This is a transportation problem
// between kinds (Transport), of which the paper's is the case with one of each kind. For n survivors of a kinds and places
// of b kinds it takes O(n*b) and about (a+b)*a*b steps, and where seconds tell the survivors of a kind apart, at most
// n*n*b more.
func LeastTotal(problem Problem) (Migration, error) {
	m, err := newMatcher(problem)
	if err != nil {
		return Migration{}, err
	}
	// A flow is a cheapest one if, and only if, it runs between kinds alone whose prices add up to their cost.
	cheapest := newTransporter(m.cost, sizes(m.survivors), sizes(m.places))
	if err := cheapest.run(); err != nil {
		return Migration{}, err
	}
	rows := m.split(func(i, j int) bool { return m.cost[i][j] == cheapest.rowPrice[i]+cheapest.columnPrice[j] })
	flow, err := transportLeastLargest(timesOf(rows), supplyOf(rows), sizes(m.places))
	if err != nil {
		return Migration{}, err
	}
	return m.migration(rows, flow), nil
}

// matcher is a problem sorted into kinds.
type matcher struct {
	problem           Problem
	survivors, places []kind    // places beyond the list are for the idle
	cost              [][]int64 // bytes missing, per kind of survivor and kind of place
	orphans           []int
}

func newMatcher(problem Problem) (*matcher, error) {
	if err := check(problem); err != nil {
		return nil, err
	}
	count := len(problem.LayerBytes)
	survivors, err := kindsOf(count, len(problem.Survivors), func(i int) ([]layers.Range, int) {
		return problem.Survivors[i].Holds, problem.Survivors[i].Group
	})
	if err != nil {
		return nil, fmt.Errorf("survivor %w", err)
	}
	places, err := kindsOf(count, len(problem.Survivors), func(j int) ([]layers.Range, int) {
		if j >= len(problem.Places) {
			return nil, Anyone
		}
		return problem.Places[j].Needs, problem.Places[j].Group
	})
	if err != nil {
		return nil, fmt.Errorf("place %w", err)
	}
	return newMatcherOfKinds(problem, survivors, places), nil
}

func check(problem Problem) error {
	if len(problem.Survivors) == 0 {
		return errors.New("survivors: none, expected at least one")
	}
	if len(problem.Places) > len(problem.Survivors) {
		return fmt.Errorf("places: %d, expected at most one for each of the %d survivors",
			len(problem.Places), len(problem.Survivors))
	}
	for layer, size := range problem.LayerBytes {
		if size < 0 {
			return fmt.Errorf("layerBytes[%d] is %d, expected at least 0", layer, size)
		}
	}
	return nil
}

// kind is what is interchangeable: the layers, the group, and who has both.
type kind struct {
	layers  layers.Set
	group   int
	members []int
}

// kindsOf sorts n things into kinds, in order of first appearance.
func kindsOf(count, n int, of func(i int) ([]layers.Range, int)) ([]kind, error) {
	var kinds []kind
	index := make(map[string]int)
	var key []byte
	for i := range n {
		ranges, group := of(i)
		set, err := layers.NewSet(count, ranges...)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
		key = set.AppendKey(binary.AppendVarint(key[:0], int64(group)))
		k, known := index[string(key)]
		if !known {
			k = len(kinds)
			index[string(key)] = k
			kinds = append(kinds, kind{layers: set, group: group})
		}
		kinds[k].members = append(kinds[k].members, i)
	}
	return kinds, nil
}

func newMatcherOfKinds(problem Problem, survivors, places []kind) *matcher {
	m := &matcher{problem: problem, survivors: survivors, places: places}
	before := make([]int64, 1, len(problem.LayerBytes)+1) // bytes of all layers before each
	for _, bytes := range problem.LayerBytes {
		before = append(before, before[len(before)-1]+bytes)
	}
	needed := make([][]layers.Range, len(places))
	for j, place := range places {
		needed[j] = place.layers.Ranges()
	}
	for _, survivor := range survivors {
		held, cost := survivor.layers.Ranges(), make([]int64, len(places))
		for j, place := range places {
			cost[j] = Forbidden
			if place.group == Anyone || place.group == survivor.group {
				cost[j] = missingBytes(needed[j], held, before)
			}
		}
		m.cost = append(m.cost, cost)
	}
	m.orphans = orphans(len(problem.LayerBytes), survivors)
	return m
}

// missing returns the layers that a kind of survivors lacks for a kind of places, ascending.
func (m *matcher) missing(survivors, places int) []int {
	return m.places[places].layers.Minus(m.survivors[survivors].layers).Members()
}

// missingBytes is how long the layers are that are needed and not held. Both are ascending and disjoint; before tells the
// bytes of all layers before each. O(ranges): to count layer by layer took 512 survivors of 4,096 layers, all of which
// held and needed other ones, 5 CPU seconds.
func missingBytes(needed, held []layers.Range, before []int64) (bytes int64) {
	next := 0
	for _, need := range needed {
		bytes += before[need.End] - before[need.First]
		for next < len(held) && held[next].End <= need.First {
			next++
		}
		for k := next; k < len(held) && held[k].First < need.End; k++ {
			bytes -= before[min(need.End, held[k].End)] - before[max(need.First, held[k].First)]
		}
	}
	return bytes
}

func orphans(count int, survivors []kind) []int {
	rest, _ := layers.NewSet(count, layers.Range{End: count})
	for _, survivor := range survivors {
		rest = rest.Minus(survivor.layers)
	}
	return rest.Members()
}

// migration is the one in which as many of each row take places of each kind as the flow says.
func (m *matcher) migration(rows []row, flow [][]int) Migration {
	n := len(m.problem.Survivors)
	result := Migration{PlaceOf: make([]int, n), Missing: make([][]int, n), Orphans: m.orphans}
	members := make([][]int, len(rows))
	for r, row := range rows {
		members[r] = row.members
		first := 0
		for j, amount := range flow[r] {
			if amount == 0 {
				continue
			}
			missing, bytes := m.missing(row.kind, j), m.cost[row.kind][j]
			result.Bytes += int64(amount) * bytes
			result.LargestBytes = max(result.LargestBytes, bytes)
			result.Nanoseconds = max(result.Nanoseconds, row.times[j])
			result.Layers += amount * len(missing)
			for _, survivor := range row.members[first : first+amount] {
				result.Missing[survivor] = missing
			}
			first += amount
		}
	}
	pairUp(flow, members, membersOf(m.places), result.PlaceOf)
	for survivor, place := range result.PlaceOf {
		if place >= len(m.problem.Places) {
			result.PlaceOf[survivor] = Idle
		}
	}
	return result
}

// pairUp hands the columns of each kind to the rows of each kind, lowest index first, as flow says.
func pairUp(flow [][]int, rows, columns [][]int, columnOf []int) {
	next := make([]int, len(columns))
	for k, members := range rows {
		row := 0
		for l, amount := range flow[k] {
			for range amount {
				columnOf[members[row]] = columns[l][next[l]]
				row++
				next[l]++
			}
		}
	}
}

func membersOf(kinds []kind) [][]int {
	members := make([][]int, len(kinds))
	for k, kind := range kinds {
		members[k] = kind.members
	}
	return members
}

func sizes(kinds []kind) []int {
	counts := make([]int, len(kinds))
	for k, kind := range kinds {
		counts[k] = len(kind.members)
	}
	return counts
}
