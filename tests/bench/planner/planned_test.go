package main

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/reknit/reknit/tests/papers/dtfm"
)

// The twin is the search of the bare matrix with an exact search of classes, which knows the regions.
func TestThePlannersFirstPlanCostsWhatABareMatrixDoesWhateverNodesAreCalled(t *testing.T) {
	networks, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	networks = append(networks, generated(1), generated(2), generated(3), generated(4))
	for i, n := range networks {
		placed, err := n.grid.Place(dtfm.Effort{Moves: 100_000, Mixtures: 50_000})
		if err != nil {
			t.Fatal(err)
		}
		cost, err := n.planned(rand.New(rand.NewPCG(uint64(i), 3)), stated)
		if err != nil {
			t.Fatal(err)
		}
		if allowed := 1.06 * placed.CommunicationSeconds(); cost > allowed {
			t.Errorf("%s: the first plan costs %.3f s, expected %.3f at most", n.name, cost, allowed)
		}
	}
}

func TestRegionsArePlacedByFiveProbesOfEachLinkThatScatterByATwentieth(t *testing.T) {
	networks, err := load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range networks {
		if !strings.Contains(n.name, " regions") {
			continue
		}
		placed, err := n.grid.Place(dtfm.Effort{Moves: 100_000, Mixtures: 50_000})
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 3))
		cost, err := n.planned(random, probedFiveTimes(random))
		allowed := 1.01 * placed.CommunicationSeconds()
		if err != nil || cost > allowed {
			t.Errorf("%s: the first plan costs %.3f s, expected %.3f at most, %v", n.name, cost, allowed, err)
		}
		if cost, err = n.livePlanned(random); err != nil || cost > allowed {
			t.Errorf("%s: the plan of a live cluster costs %.3f s, expected %.3f at most, %v", n.name, cost, allowed, err)
		}
	}
}

// The least costs known are of paths of two runs of equal groups, which single swaps hardly find.
func TestTheFirstPlanOfAHundredNodesInRegionsCostsTheLeastKnownWhateverTheyAreCalled(t *testing.T) {
	for seed, least := range map[uint64]float64{3: 40.853, 10: 46.962} {
		for shuffle := range uint64(2) {
			random := rand.New(rand.NewPCG(shuffle, 3))
			n := generated(seed)
			if cost, err := n.planned(random, stated); err != nil || cost > 1.001*least {
				t.Errorf("%s: the first plan costs %.3f s, expected %.3f, %v", n.name, cost, least, err)
			}
		}
	}
}

func TestTheRegionsOfAHundredNodesAreToldByFiveProbesOfEachLink(t *testing.T) {
	n, random := generated(3), rand.New(rand.NewPCG(0, 3))
	if cost, err := n.planned(random, probedFiveTimes(random)); err != nil || cost > 1.01*40.853 {
		t.Errorf("%s: the first plan costs %.3f s, expected 1.01 times 40.853 at most, %v", n.name, cost, err)
	}
}
