package migrate_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/migrate"
)

func ranges(bounds ...int) []layers.Range {
	var all []layers.Range
	for k := 0; k < len(bounds); k += 2 {
		all = append(all, layers.Range{First: bounds[k], End: bounds[k+1]})
	}
	return all
}

// missingLayers is what a survivor lacks for a place, layer by layer.
func missingLayers(problem migrate.Problem, survivor int, needs []layers.Range) []int {
	in := func(all []layers.Range, layer int) bool {
		for _, r := range all {
			if r.First <= layer && layer < r.End {
				return true
			}
		}
		return false
	}
	var missing []int
	for layer := range problem.LayerBytes {
		if in(needs, layer) && !in(problem.Survivors[survivor].Holds, layer) {
			missing = append(missing, layer)
		}
	}
	return missing
}

func randomProblem(random *rand.Rand) migrate.Problem {
	count := 1 + random.IntN(9)
	problem := migrate.Problem{LayerBytes: make([]int64, count)}
	for layer := range problem.LayerBytes {
		problem.LayerBytes[layer] = random.Int64N(10)
	}
	someRanges := func() []layers.Range {
		var all []layers.Range
		for range random.IntN(3) {
			first := random.IntN(count + 1)
			all = append(all, layers.Range{First: first, End: first + random.IntN(count-first+1)})
		}
		return all
	}
	groups := 1 + random.IntN(3)
	for range 1 + random.IntN(6) {
		problem.Survivors = append(problem.Survivors, migrate.Survivor{Holds: someRanges(), Group: random.IntN(groups)})
	}
	for range random.IntN(len(problem.Survivors) + 1) {
		problem.Places = append(problem.Places, migrate.Place{Needs: someRanges(), Group: random.IntN(groups+1) - 1})
	}
	return problem
}

// checkMigration recounts everything a migration says about itself from the problem.
func checkMigration(t *testing.T, problem migrate.Problem, m migrate.Migration) {
	t.Helper()
	taken := make([]bool, len(problem.Places))
	idle, bytes, largest, count := 0, int64(0), int64(0), 0
	for i, place := range m.PlaceOf {
		if place == migrate.Idle {
			if idle++; len(m.Missing[i]) > 0 {
				t.Fatalf("survivor %d is idle and fetches %v", i, m.Missing[i])
			}
			continue
		}
		if taken[place] {
			t.Fatalf("place %d is taken twice: %v", place, m.PlaceOf)
		}
		taken[place] = true
		if group := problem.Places[place].Group; group != migrate.Anyone && group != problem.Survivors[i].Group {
			t.Fatalf("survivor %d of group %d took a place of group %d", i, problem.Survivors[i].Group, group)
		}
		missing := missingLayers(problem, i, problem.Places[place].Needs)
		if !reflect.DeepEqual(missing, m.Missing[i]) {
			t.Fatalf("survivor %d misses %v, said %v", i, missing, m.Missing[i])
		}
		own := int64(0)
		for _, layer := range missing {
			own += problem.LayerBytes[layer]
		}
		bytes, largest, count = bytes+own, max(largest, own), count+len(missing)
	}
	if idle != len(problem.Survivors)-len(problem.Places) {
		t.Fatalf("%d idle survivors: %v", idle, m.PlaceOf)
	}
	if bytes != m.Bytes || largest != m.LargestBytes || count != m.Layers {
		t.Fatalf("fetches %d bytes, at most %d, %d layers; said %d, %d, %d",
			bytes, largest, count, m.Bytes, m.LargestBytes, m.Layers)
	}
}

// Chameleon, figure 3: nine layers, three pipelines of three stages become two of four, one node lost.
func TestFromThreeByThreeToTwoByFourMovesThreeLayers(t *testing.T) {
	problem := migrate.Problem{LayerBytes: []int64{1, 1, 1, 1, 1, 1, 1, 1, 1}}
	for _, first := range []int{0, 3, 6, 0, 6, 0, 3, 6} {
		problem.Survivors = append(problem.Survivors, migrate.Survivor{Holds: ranges(first, first+3)})
	}
	for range 2 {
		for _, needs := range [][]layers.Range{ranges(0, 2), ranges(2, 4), ranges(4, 6), ranges(6, 9)} {
			problem.Places = append(problem.Places, migrate.Place{Needs: needs, Group: migrate.Anyone})
		}
	}
	m, err := migrate.LeastTotal(problem)
	if err != nil {
		t.Fatal(err)
	}
	if m.Layers != 3 || m.Bytes != 3 || len(m.Orphans) != 0 {
		t.Errorf("moved %d layers, %d bytes, orphans %v; expected 3, 3 and none", m.Layers, m.Bytes, m.Orphans)
	}
}

func TestNobodyMovesWhenThePlanStaysTheSame(t *testing.T) {
	problem := migrate.Problem{LayerBytes: []int64{5, 5, 5, 5}}
	for _, first := range []int{0, 2, 0, 2} {
		problem.Survivors = append(problem.Survivors, migrate.Survivor{Holds: ranges(first, first+2)})
		problem.Places = append(problem.Places, migrate.Place{Needs: ranges(first, first+2)})
	}
	m, err := migrate.LeastTotal(problem)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 1, 2, 3}; !reflect.DeepEqual(m.PlaceOf, want) || m.Bytes != 0 {
		t.Errorf("places %v and %d bytes, expected %v and none", m.PlaceOf, m.Bytes, want)
	}
}

func TestAJoinerTakesThePlaceThatWasLost(t *testing.T) {
	problem := migrate.Problem{
		LayerBytes: []int64{7, 7, 7, 7},
		Survivors:  []migrate.Survivor{{Holds: ranges(0, 2)}, {Holds: ranges(2, 4)}, {}, {Holds: ranges(0, 2)}},
		Places: []migrate.Place{
			{Needs: ranges(0, 2)}, {Needs: ranges(2, 4)}, {Needs: ranges(0, 2)}, {Needs: ranges(2, 4)},
		},
	}
	m, err := migrate.LeastTotal(problem)
	if err != nil {
		t.Fatal(err)
	}
	if m.PlaceOf[2] != 3 || !reflect.DeepEqual(m.Missing[2], []int{2, 3}) || m.Bytes != 14 {
		t.Errorf("the joiner took place %d and fetches %v, %d bytes in all", m.PlaceOf[2], m.Missing[2], m.Bytes)
	}
}

func TestALayerThatNoSurvivorHoldsIsAnOrphan(t *testing.T) {
	problem := migrate.Problem{
		LayerBytes: []int64{1, 1, 1},
		Survivors:  []migrate.Survivor{{Holds: ranges(0, 1)}, {Holds: ranges(2, 3)}},
		Places:     []migrate.Place{{Needs: ranges(0, 2)}, {Needs: ranges(2, 3)}},
	}
	m, err := migrate.LeastTotal(problem)
	if err != nil || !reflect.DeepEqual(m.Orphans, []int{1}) {
		t.Errorf("orphans %v (error %v), expected layer 1", m.Orphans, err)
	}
}

func TestAProblemOutOfBoundsIsRefused(t *testing.T) {
	for name, problem := range map[string]migrate.Problem{
		"nobody":        {},
		"too few":       {Survivors: []migrate.Survivor{{}}, Places: []migrate.Place{{}, {}}},
		"negative size": {LayerBytes: []int64{-1}, Survivors: []migrate.Survivor{{}}},
		"foreign layer": {LayerBytes: []int64{1}, Survivors: []migrate.Survivor{{Holds: ranges(0, 2)}}},
		"foreign demand": {
			LayerBytes: []int64{1}, Survivors: []migrate.Survivor{{}}, Places: []migrate.Place{{Needs: ranges(1, 2)}},
		},
	} {
		if _, err := migrate.LeastTotal(problem); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// BenchmarkMigrationOfTwoThousand loses one of 2,048 nodes in pipelines of eight stages, which become seven, eight and
// nine stages long.
func BenchmarkMigrationOfTwoThousand(b *testing.B) {
	problem := migrate.Problem{LayerBytes: make([]int64, 96)}
	for layer := range problem.LayerBytes {
		problem.LayerBytes[layer] = 2_834_000_000
	}
	for i := range 2047 {
		stage := (i + 1) % 8
		problem.Survivors = append(problem.Survivors, migrate.Survivor{Holds: ranges(stage*12, stage*12+12)})
	}
	for pipeline := 0; len(problem.Places) < 2047; pipeline++ {
		stages := 7 + pipeline%3
		for stage := range min(stages, 2047-len(problem.Places)) {
			problem.Places = append(problem.Places, migrate.Place{Needs: ranges(stage*96/stages, (stage+1)*96/stages)})
		}
	}
	b.Run("equal links", func(b *testing.B) { leastTotal(b, problem) })
	random := rand.New(rand.NewPCG(1, 10))
	rate := make([]float64, len(problem.Survivors))
	for i := range rate {
		rate[i] = 1e9 * (1 + random.Float64())
	}
	problem.Seconds = func(missing []int) func(int) float64 {
		return func(survivor int) float64 { return float64(len(missing)) * 2_834_000_000 / rate[survivor] }
	}
	b.Run("every link another", func(b *testing.B) { leastTotal(b, problem) })
}

func leastTotal(b *testing.B, problem migrate.Problem) {
	for b.Loop() {
		if _, err := migrate.LeastTotal(problem); err != nil {
			b.Fatal(err)
		}
	}
}
