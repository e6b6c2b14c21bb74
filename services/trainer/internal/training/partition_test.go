package training

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// partitionedConfig cuts the optimizer state in three.
func partitionedConfig(t *testing.T) Config {
	config := testConfig(t)
	config.Shape.Partitions = 3
	return config
}

// threeByTwo returns a plan of three pipelines of two stages: each keeps two of three partitions.
func threeByTwo(config Config) *events.Plan {
	return planOf(config, chain{3, "a b", []int{3, 6}}, chain{3, "c d", []int{3, 6}}, chain{2, "e f", []int{2, 6}})
}

func TestPartitionsOfTheOptimizerStateTrainTheSameModel(t *testing.T) {
	for partitions := 1; partitions <= 4; partitions++ {
		config := testConfig(t)
		config.Shape.Partitions = partitions
		c := newCluster(t, config)
		c.begin(threeByTwo(config), sixNodes...)
		c.expectOracle()
	}
}

func TestParametersAreSentOnlyToWhoKeepsOtherPartitions(t *testing.T) {
	for _, test := range []struct {
		plan   func(Config) *events.Plan
		spread bool
	}{{twoByThree, false}, {threeByTwo, true}} { // two pipelines keep all partitions each
		config, spread := partitionedConfig(t), false
		c := newCluster(t, config)
		c.start("a", mortally(func(u use) bool { spread = spread || strings.HasSuffix(u.what, "spread"); return false }))
		c.begin(test.plan(config), sixNodes...)
		c.expectOracle()
		if spread != test.spread {
			t.Errorf("parameters sent: %v, expected %v", spread, test.spread)
		}
	}
}

func TestLosingATrainerThatKeepsPartitionsInAnyPhaseOfAStep(t *testing.T) {
	for moment, victims := range map[string]string{
		"send forward": "a e", "send backward": "b f", "send scatter": "a b e", "received scatter": "a b e",
		"send gather": "a b e", "received gather": "a b e", "send spread": "a b e", "received spread": "a b e",
	} {
		for _, victim := range strings.Fields(victims) {
			t.Run(moment+" "+victim, func(t *testing.T) {
				c := newCluster(t, partitionedConfig(t))
				c.replan = twoAndThree(c.config)
				c.start(victim, mortally(atThe(1, moment)))
				c.begin(threeByTwo(c.config), sixNodes...)
				c.expectOracle()
				if c.plan.Generation != 2 {
					t.Errorf("training ended in generation %d: expected the second", c.plan.Generation)
				}
			})
		}
	}
}

func TestPartitionsThatChangeHandsAreTheSame(t *testing.T) {
	config := partitionedConfig(t)
	config.Steps = 6
	c := newCluster(t, config)
	p := preCopy(t, c)
	c.pauses = []uint64{2, 4}
	c.begin(planOf(config, chain{8, "a", []int{6}}), "a")
	c.begin(planOf(config, chain{3, "b", []int{6}}, chain{3, "a", []int{6}}, chain{2, "c d", []int{1, 6}}), "b", "c", "d")
	c.begin(planOf(config, chain{4, "d c", []int{4, 6}}, chain{4, "b", []int{6}}))
	c.finish()
	perStep := []int{6 * 4, 3*6 + 6*6, 2 * 6 * 4} // layers, and partitions of layers
	p.expect(2 * (perStep[0] + perStep[1] + perStep[2]))
}

func TestLosingTrainersThatKeepPartitionsAtRandomMoments(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 6))
			config := partitionedConfig(t)
			config.Shape.Partitions = 1 + random.IntN(4)
			c := newCluster(t, config)
			c.replan = func(survivors []string) *events.Plan { return randomPlan(random, config, survivors) }
			for _, victim := range []int{2 * random.IntN(3), 1 + 2*random.IntN(3)} { // not two holders of a layer
				uses := 1 + random.IntN(100)
				c.start(sixNodes[victim], mortally(func(use) bool { uses--; return uses == 0 }))
			}
			c.begin(planOf(config, chain{3, "a b", []int{3, 6}}, chain{3, "c d", []int{3, 6}}, chain{2, "e f", []int{3, 6}}),
				sixNodes...)
			c.expectOracle()
		})
	}
}
