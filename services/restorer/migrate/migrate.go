// Package migrate decides who becomes whom: which survivor takes which place of the next plan, so that as little as
// possible has to be fetched (Chameleon, weight migration in section IV).
//
// What matters is only what a node holds and what a place needs. Survivors that hold the same are one kind, places that
// need the same are one kind, and between kinds it is a small transportation problem whose size does not grow with the
// cluster. Assign and AssignLeastLargest solve the plain problem, a cost for every pair.
package migrate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

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

	// BytesPerSecond is the rate at which it receives, 0 for 1e9. Few different ones keep the kinds few.
	BytesPerSecond float64
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
}

// Migration is who takes which place, and what that costs. Per survivor in the order of the problem.
type Migration struct {
	PlaceOf      []int   // index of the place, or Idle
	Missing      [][]int // layers to fetch, ascending
	Bytes        int64   // fetched by all
	LargestBytes int64   // fetched by the one who fetches most
	Nanoseconds  int64   // that the one takes who fetches longest, at its own rate
	Layers       int     // fetched by all
	Orphans      []int   // layers no survivor holds, ascending: they must come from a snapshot
}

// LeastTotal returns a migration that fetches the fewest bytes, and of those one in which the node that fetches longest
// takes as little time as possible, because the restoration ends with it. Among survivors of a kind the first in the
// list takes the first place of a kind. It fails when a range, a size or a rate is out of bounds, when there are more places
// than survivors, and with ErrNoMatching when the groups leave a place that nobody may take.
//
// For n survivors of a kinds and places of b kinds it takes O(n) and about (a+b)*a*b*log2(a*b) steps.
func LeastTotal(problem Problem) (Migration, error) {
	m, err := newMatcher(problem)
	if err != nil {
		return Migration{}, err
	}
	_, fewest, _ := m.flow(Forbidden - 1)
	return m.match(m.leastLimit(func(bytes int64) bool { return bytes == fewest }))
}

// LeastLargest returns a migration in which the node that fetches longest takes as little time as possible, and of those
// one that fetches the fewest bytes. Where all rates are equal, that node is the one that fetches most. Otherwise like
// LeastTotal.
func LeastLargest(problem Problem) (Migration, error) {
	m, err := newMatcher(problem)
	if err != nil {
		return Migration{}, err
	}
	return m.match(m.leastLimit(func(int64) bool { return true }))
}

// matcher is a problem sorted into kinds.
type matcher struct {
	problem           Problem
	survivors, places [][]int // members of each kind; places beyond the list are for the idle
	missing           [][]layers.Set
	cost              [][]int64 // bytes missing
	time              [][]int64 // nanoseconds to fetch them; all three per kind of survivor and kind of place
	orphans           []int
}

func newMatcher(problem Problem) (*matcher, error) {
	if err := check(problem); err != nil {
		return nil, err
	}
	count := len(problem.LayerBytes)
	survivors, err := kindsOf(count, len(problem.Survivors), func(i int) ([]layers.Range, int, float64) {
		return problem.Survivors[i].Holds, problem.Survivors[i].Group, problem.Survivors[i].rate()
	})
	if err != nil {
		return nil, fmt.Errorf("survivor %w", err)
	}
	places, err := kindsOf(count, len(problem.Survivors), func(j int) ([]layers.Range, int, float64) {
		if j >= len(problem.Places) {
			return nil, Anyone, 0
		}
		return problem.Places[j].Needs, problem.Places[j].Group, 0
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
	for i, survivor := range problem.Survivors {
		if rate := survivor.BytesPerSecond; !(rate >= 0) || math.IsInf(rate, 1) {
			return fmt.Errorf("survivor %d: bytesPerSecond is %v, expected a finite number of at least 0", i, rate)
		}
	}
	return nil
}

func (s Survivor) rate() float64 {
	if s.BytesPerSecond == 0 {
		return 1e9
	}
	return s.BytesPerSecond
}

const mostNanoseconds = 1 << 62 // a century, and below Forbidden

// kind is what is interchangeable: the layers, the group, the rate, and who has all three.
type kind struct {
	layers  layers.Set
	group   int
	rate    float64
	members []int
}

// kindsOf sorts n things into kinds, in order of first appearance.
func kindsOf(count, n int, of func(i int) ([]layers.Range, int, float64)) ([]kind, error) {
	var kinds []kind
	index := make(map[string]int)
	var key []byte
	for i := range n {
		ranges, group, rate := of(i)
		set, err := layers.NewSet(count, ranges...)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
		key = binary.LittleEndian.AppendUint64(key[:0], math.Float64bits(rate))
		key = set.AppendKey(binary.AppendVarint(key, int64(group)))
		k, known := index[string(key)]
		if !known {
			k = len(kinds)
			index[string(key)] = k
			kinds = append(kinds, kind{layers: set, group: group, rate: rate})
		}
		kinds[k].members = append(kinds[k].members, i)
	}
	return kinds, nil
}

func newMatcherOfKinds(problem Problem, survivors, places []kind) *matcher {
	m := &matcher{problem: problem}
	for _, place := range places {
		m.places = append(m.places, place.members)
	}
	for i, survivor := range survivors {
		m.survivors = append(m.survivors, survivor.members)
		m.missing = append(m.missing, make([]layers.Set, len(places)))
		m.cost = append(m.cost, make([]int64, len(places)))
		m.time = append(m.time, make([]int64, len(places)))
		for j, place := range places {
			m.missing[i][j] = place.layers.Minus(survivor.layers)
			m.cost[i][j], m.time[i][j] = Forbidden, Forbidden
			if place.group == Anyone || place.group == survivor.group {
				m.cost[i][j] = bytesOf(m.missing[i][j], problem.LayerBytes)
				m.time[i][j] = int64(min(float64(m.cost[i][j])/(survivor.rate/1e9), mostNanoseconds))
			}
		}
	}
	m.orphans = orphans(len(problem.LayerBytes), survivors)
	return m
}

func bytesOf(set layers.Set, layerBytes []int64) int64 {
	total := int64(0)
	for _, layer := range set.Members() {
		total += layerBytes[layer]
	}
	return total
}

func orphans(count int, survivors []kind) []int {
	rest, _ := layers.NewSet(count, layers.Range{End: count})
	for _, survivor := range survivors {
		rest = rest.Minus(survivor.layers)
	}
	return rest.Members()
}

// flow finds how many of each kind take places of each kind for the fewest bytes, when nobody may take longer than limit.
func (m *matcher) flow(limit int64) (flow [][]int, bytes int64, ok bool) {
	cost := make([][]int64, len(m.cost))
	for i, row := range m.cost {
		cost[i] = slices.Clone(row)
		for j, time := range m.time[i] {
			if time > limit {
				cost[i][j] = Forbidden
			}
		}
	}
	flow, ok = transport(cost, sizes(m.survivors), sizes(m.places), Forbidden-1)
	for i, row := range flow {
		for j, amount := range row {
			if amount > 0 {
				bytes += int64(amount) * cost[i][j]
			}
		}
	}
	return flow, bytes, ok
}

// leastLimit returns the least time in which there is a flow of so many bytes as will do, which more time cannot spoil.
func (m *matcher) leastLimit(do func(bytes int64) bool) int64 {
	limits := slices.Concat(m.time...)
	slices.Sort(limits)
	limits = slices.Compact(limits)
	least := sort.Search(len(limits)-1, func(i int) bool {
		_, bytes, ok := m.flow(limits[i])
		return ok && do(bytes)
	})
	return min(limits[least], Forbidden-1)
}

// match is the migration of the flow within limit.
func (m *matcher) match(limit int64) (Migration, error) {
	flow, bytes, ok := m.flow(limit)
	if !ok {
		return Migration{}, ErrNoMatching
	}
	n := len(m.problem.Survivors)
	result := Migration{PlaceOf: make([]int, n), Missing: make([][]int, n), Bytes: bytes, Orphans: m.orphans}
	pairUp(flow, m.survivors, m.places, result.PlaceOf)
	for i, row := range flow {
		first := 0
		for j, amount := range row {
			if amount == 0 {
				continue
			}
			result.LargestBytes = max(result.LargestBytes, m.cost[i][j])
			result.Nanoseconds = max(result.Nanoseconds, m.time[i][j])
			for _, survivor := range m.survivors[i][first : first+amount] {
				result.Missing[survivor] = m.missing[i][j].Members()
				result.Layers += len(result.Missing[survivor])
			}
			first += amount
		}
	}
	for survivor, place := range result.PlaceOf {
		if place >= len(m.problem.Places) {
			result.PlaceOf[survivor] = Idle
		}
	}
	return result, nil
}
