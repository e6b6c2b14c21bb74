package training

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/oracle"
	"github.com/reknit/reknit/services/trainer/text"
)

const poem = "The light that shines is bent by glass in colours seven, red to blue; " +
	"each colour has a way to pass, and every way is straight and true. "

// testConfig is a training that takes milliseconds: 6 layers, 8 samples a step, 5 steps.
func testConfig(t testing.TB) Config {
	t.Helper()
	shape := model.Shape{Context: 3, Window: 4, Width: 8, Hidden: 12, Blocks: 4}
	samples, err := text.New([]byte(strings.Repeat(poem, 3)), shape.Context, shape.Window, 1)
	if err != nil {
		t.Fatal(err)
	}
	shape.Vocabulary = len(samples.Vocabulary())
	return Config{
		Shape: shape, Adam: model.DefaultAdam(), Seed: 1, GlobalBatch: 8, MicroBatch: 1, Steps: 5, Samples: samples,
	}
}

// undisturbed returns the digest and the losses of one process that trains alone.
func undisturbed(t testing.TB, config Config) (digest string, losses []float64) {
	t.Helper()
	digest, losses, err := oracle.Run(oracle.Training{
		Shape: config.Shape, Adam: config.Adam, Seed: config.Seed, GlobalBatch: config.GlobalBatch, Steps: int(config.Steps),
	}, config.Samples, nil)
	if err != nil {
		t.Fatal(err)
	}
	return digest, losses
}

func (c *cluster) expectOracle() {
	c.t.Helper()
	digest := c.finish()
	want, losses := undisturbed(c.t, c.config)
	if digest != want {
		c.t.Errorf("digest is %s: expected the undisturbed %s", digest, want)
	}
	for step, loss := range losses {
		if got := c.losses[uint64(step+1)]; got != loss {
			c.t.Errorf("loss of step %d is %v: expected the undisturbed %v", step, got, loss)
		}
	}
}

// begin starts trainers and has them follow a plan.
func (c *cluster) begin(plan *events.Plan, names ...string) {
	c.t.Helper()
	for _, name := range names {
		if c.nodes[name] == nil {
			c.start(name, nil)
		}
	}
	if c.await("all nodes wait", c.allWait) {
		c.follow(plan)
	}
}

func TestEveryLayoutTrainsTheOraclesModel(t *testing.T) {
	for name, layout := range map[string]struct {
		microBatch int
		chains     []chain
	}{
		"1x1":          {1, []chain{{8, "a", []int{6}}}},
		"1x1 whole":    {8, []chain{{1, "a", []int{6}}}},
		"1x6":          {1, []chain{{8, "a b c d e f", []int{1, 2, 3, 4, 5, 6}}}},
		"3x1":          {1, []chain{{3, "a", []int{6}}, {3, "b", []int{6}}, {2, "c", []int{6}}}},
		"2x3":          {1, []chain{{4, "a b c", []int{2, 4, 6}}, {4, "d e f", []int{2, 4, 6}}}},
		"2x3 in pairs": {2, []chain{{2, "a b c", []int{2, 4, 6}}, {2, "d e f", []int{2, 4, 6}}}},
		"2+3":          {1, []chain{{3, "a b", []int{3, 6}}, {5, "c d e", []int{2, 5, 6}}}},
		"1+2+3":        {1, []chain{{1, "a", []int{6}}, {3, "b c", []int{4, 6}}, {4, "d e f", []int{2, 3, 6}}}},
	} {
		t.Run(name, func(t *testing.T) {
			config := testConfig(t)
			config.MicroBatch = layout.microBatch
			c := newCluster(t, config)
			var names []string
			for _, chain := range layout.chains {
				names = append(names, strings.Fields(chain.nodes)...)
			}
			c.begin(planOf(config, layout.chains...), names...)
			c.expectOracle()
		})
	}
}

func TestASpareNodeWaits(t *testing.T) {
	c := newCluster(t, testConfig(t))
	c.begin(planOf(c.config, chain{8, "a", []int{6}}), "a", "spare")
	c.expectOracle()
}

func TestARelayedPairTrainsTheSameModel(t *testing.T) {
	c := newCluster(t, testConfig(t))
	plan := planOf(c.config, chain{4, "a b", []int{3, 6}}, chain{4, "c d", []int{3, 6}})
	plan.Relays = []events.Pair{{A: "a", B: "b"}, {A: "b", B: "d"}}
	c.begin(plan, "a", "b", "c", "d")
	c.expectOracle()
}

func TestAJoinAndALeaveAtAStepBoundary(t *testing.T) {
	config := testConfig(t)
	config.Steps = 6
	c := newCluster(t, config)
	c.pauses = []uint64{2, 4}
	c.begin(planOf(config, chain{8, "a", []int{6}}), "a")
	c.begin(planOf(config, chain{5, "b a", []int{4, 6}}, chain{3, "c", []int{6}}), "b", "c")
	c.begin(planOf(config, chain{8, "c b", []int{1, 6}}))
	c.expectOracle()
	if c.plan.Generation != 3 || c.plan.ResumeStep != 4 {
		t.Errorf("training ended in generation %d, resumed at step %d: expected 3 and 4",
			c.plan.Generation, c.plan.ResumeStep)
	}
}
