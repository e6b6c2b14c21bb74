package migrate_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/restorer/migrate"
)

// costMatrix is the problem as a plain assignment, every survivor with every place.
func costMatrix(problem migrate.Problem) [][]int64 {
	cost := make([][]int64, len(problem.Survivors))
	for i, survivor := range problem.Survivors {
		cost[i] = make([]int64, len(problem.Survivors))
		for j, place := range problem.Places {
			if place.Group != migrate.Anyone && place.Group != survivor.Group {
				cost[i][j] = migrate.Forbidden
				continue
			}
			for _, layer := range missingLayers(problem, i, place.Needs) {
				cost[i][j] += problem.LayerBytes[layer]
			}
		}
	}
	return cost
}

// fewestThenShortest tries every matching: the least sum of costs, and the least largest time that goes with it. Both
// are Forbidden where no matching is allowed.
func fewestThenShortest(cost, times [][]int64) (fewest, shortest int64) {
	fewest, shortest = migrate.Forbidden, migrate.Forbidden
	used := make([]bool, len(cost))
	var try func(row int, sum, longest int64)
	try = func(row int, sum, longest int64) {
		if row == len(cost) {
			if sum < fewest || sum == fewest && longest < shortest {
				fewest, shortest = sum, longest
			}
			return
		}
		for column, c := range cost[row] {
			if !used[column] && c != migrate.Forbidden {
				used[column] = true
				try(row+1, sum+c, max(longest, times[row][column]))
				used[column] = false
			}
		}
	}
	try(0, 0, 0)
	return fewest, shortest
}

// ownLinks has each survivor take some whole seconds for a byte of each layer, and returns the nanoseconds of every
// pair.
func ownLinks(random *rand.Rand, problem *migrate.Problem) [][]int64 {
	perByte := make([][]int64, len(problem.Survivors))
	for i := range perByte {
		if i > 0 && random.IntN(2) == 0 {
			perByte[i] = perByte[i-1]
			continue
		}
		for range problem.LayerBytes {
			perByte[i] = append(perByte[i], 1+random.Int64N(4))
		}
	}
	seconds := func(survivor int, missing []int) (total int64) {
		for _, layer := range missing {
			total += perByte[survivor][layer] * problem.LayerBytes[layer]
		}
		return total
	}
	problem.Seconds = func(missing []int) func(int) float64 {
		return func(survivor int) float64 { return float64(seconds(survivor, missing)) }
	}
	times := costMatrix(*problem)
	for i := range times {
		for j, place := range problem.Places {
			if times[i][j] != migrate.Forbidden {
				times[i][j] = 1e9 * seconds(i, missingLayers(*problem, i, place.Needs))
			}
		}
	}
	return times
}

// solve returns a sound migration, or false where the problem has none and was refused for it.
func solve(t *testing.T, seed uint64, problem migrate.Problem, fewest int64) (migrate.Migration, bool) {
	t.Helper()
	m, err := migrate.LeastTotal(problem)
	if fewest == migrate.Forbidden {
		if !errors.Is(err, migrate.ErrNoMatching) {
			t.Fatalf("seed %d: no matching is allowed, got %v", seed, err)
		}
		return m, false
	}
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	checkMigration(t, problem, m)
	return m, true
}

func TestOverLinksOfTheirOwnBytesAndTimeAreThoseOfTheBestOfAllMatchings(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 9))
		problem := randomProblem(random)
		cost, times := costMatrix(problem), ownLinks(random, &problem)
		fewest, thenLongest := fewestThenShortest(cost, times)
		m, possible := solve(t, seed, problem, fewest)
		if !possible {
			continue
		}
		if m.Bytes != fewest || m.Nanoseconds != thenLongest {
			t.Fatalf("seed %d: %d bytes in %d ns, best %d in %d", seed, m.Bytes, m.Nanoseconds, fewest, thenLongest)
		}
	}
}

func TestAMigrationFetchesAsLittleAsTheBestOfAllMatchings(t *testing.T) {
	for seed := range uint64(2000) {
		problem := randomProblem(rand.New(rand.NewPCG(seed, 5)))
		cost := costMatrix(problem)
		fewest, thenLargest := fewestThenShortest(cost, cost)
		m, possible := solve(t, seed, problem, fewest)
		if !possible {
			continue
		}
		if m.Bytes != fewest || m.LargestBytes != thenLargest {
			t.Fatalf("seed %d: %d bytes, %d at most, best %d and %d", seed, m.Bytes, m.LargestBytes, fewest,
				thenLargest)
		}
	}
}

// The twin matches every unit of supply with every unit of demand.
func TestATransportCostsAsLittleAsTheBestOfAllMatchingsOfUnits(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 11))
		supply, demand := shared(random, 1+random.IntN(6))
		cost := make([][]int64, len(supply))
		for i := range cost {
			for range demand {
				c := random.Int64N(20) - 5
				if random.IntN(5) == 0 {
					c = migrate.Forbidden
				}
				cost[i] = append(cost[i], c)
			}
		}
		units := unitCosts(cost, supply, demand)
		least, _ := fewestThenShortest(units, units)
		flow, err := migrate.Transport(cost, supply, demand)
		if least == migrate.Forbidden {
			if !errors.Is(err, migrate.ErrNoMatching) {
				t.Fatalf("seed %d: no flow is allowed, got %v", seed, err)
			}
			continue
		}
		if total := flowCost(t, cost, supply, demand, flow); err != nil || total != least {
			t.Fatalf("seed %d: flow %v costs %d (error %v), best %d", seed, flow, total, err, least)
		}
	}
}

// shared gives so many units to some rows, and to some columns.
func shared(random *rand.Rand, units int) (supply, demand []int) {
	supply, demand = make([]int, 1+random.IntN(4)), make([]int, 1+random.IntN(4))
	for range units {
		supply[random.IntN(len(supply))]++
		demand[random.IntN(len(demand))]++
	}
	return supply, demand
}

// unitCosts is the plain matrix: a row for each unit of supply, a column for each unit of demand.
func unitCosts(cost [][]int64, supply, demand []int) [][]int64 {
	var units [][]int64
	for i, sent := range supply {
		for range sent {
			var row []int64
			for j, received := range demand {
				row = append(row, slices.Repeat([]int64{cost[i][j]}, received)...)
			}
			units = append(units, row)
		}
	}
	return units
}

// flowCost recounts a flow: what each row sends, what each column receives, and what that costs.
func flowCost(t *testing.T, cost [][]int64, supply, demand []int, flow [][]int) (total int64) {
	t.Helper()
	received := make([]int, len(demand))
	for i, row := range flow {
		sent := 0
		for j, amount := range row {
			if amount < 0 || amount > 0 && cost[i][j] == migrate.Forbidden {
				t.Fatalf("%d units from %d to %d, which costs %d", amount, i, j, cost[i][j])
			}
			if amount > 0 {
				total += int64(amount) * cost[i][j]
			}
			sent, received[j] = sent+amount, received[j]+amount
		}
		if sent != supply[i] {
			t.Fatalf("row %d sends %d of %d", i, sent, supply[i])
		}
	}
	if !slices.Equal(received, demand) {
		t.Fatalf("columns receive %v, expected %v", received, demand)
	}
	return total
}
