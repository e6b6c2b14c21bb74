package training

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/internal/transport"
)

// use is one use of the network: "send" before a message is sent, "received" after one has come.
type use struct {
	step uint64
	what string // for example "send forward"
}

// mortal is a network whose node dies at a use of it.
type mortal struct {
	Network
	node *node
	step uint64
	due  func(use) bool
}

// mortally returns a wrapper for a node that dies where due says so.
func mortally(due func(use) bool) func(*node, Network) Network {
	return func(n *node, network Network) Network { return &mortal{Network: network, node: n, due: due} }
}

func (m *mortal) dies(how string, phase uint32, item uint64) bool {
	what := "spread"
	switch {
	case phase == passPhase && item&1 == 1:
		what = "backward"
	case phase == passPhase:
		what = "forward"
	case phase%phasesPerGroup == 1:
		what = "scatter"
	case phase%phasesPerGroup == 2:
		what = "gather"
	}
	if m.due(use{m.step, how + " " + what}) {
		m.node.kill()
		return true
	}
	return false
}

func (m *mortal) Begin(step uint64) {
	m.step = step
	m.Network.Begin(step)
}

func (m *mortal) Send(to string, phase uint32, item uint64, payload []byte) error {
	if m.dies("send", phase, item) {
		return context.Canceled
	}
	return m.Network.Send(to, phase, item, payload)
}

func (m *mortal) Receive(ctx context.Context, phase uint32) (transport.Message, error) {
	message, err := m.Network.Receive(ctx, phase)
	if err == nil && m.dies("received", phase, message.Item) {
		err = context.Canceled
	}
	return message, err
}

// atThe returns a moment of death: the nth use of a kind in step 2.
func atThe(nth int, what string) func(use) bool {
	return func(u use) bool {
		if u.step == 2 && u.what == what {
			nth--
			return nth == 0
		}
		return false
	}
}

var sixNodes = []string{"a", "b", "c", "d", "e", "f"}

// twoByThree returns a plan of two pipelines of three stages.
func twoByThree(config Config) *events.Plan {
	return planOf(config, chain{4, "a b c", []int{2, 4, 6}}, chain{4, "d e f", []int{2, 4, 6}})
}

// twoAndThree lays five survivors out the other way round, so that nearly everyone must fetch layers.
func twoAndThree(config Config) func([]string) *events.Plan {
	return func(survivors []string) *events.Plan {
		s := survivors
		return planOf(config,
			chain{3, s[4] + " " + s[3], []int{3, 6}},
			chain{5, s[2] + " " + s[1] + " " + s[0], []int{1, 4, 6}})
	}
}

func TestLosingATrainerInAnyPhaseOfAStep(t *testing.T) {
	for phase, at := range map[string]struct {
		due     func() func(use) bool
		victims string
	}{
		"forward":                        {func() func(use) bool { return atThe(2, "send forward") }, "a b d e"},
		"backward":                       {func() func(use) bool { return atThe(3, "send backward") }, "b c e f"},
		"reduce-scatter":                 {func() func(use) bool { return atThe(1, "send scatter") }, "a b c f"},
		"between scatter and all-gather": {func() func(use) bool { return atThe(1, "received scatter") }, "a b c f"},
		"all-gather":                     {func() func(use) bool { return atThe(1, "send gather") }, "a b c f"},
		"update":                         {func() func(use) bool { return atThe(1, "received gather") }, "a b c f"},
	} {
		for _, victim := range strings.Fields(at.victims) {
			t.Run(phase+" "+victim, func(t *testing.T) {
				c := newCluster(t, testConfig(t))
				c.replan = twoAndThree(c.config)
				c.start(victim, mortally(at.due()))
				c.begin(twoByThree(c.config), sixNodes...)
				c.expectOracle()
				if c.plan.Generation != 2 {
					t.Errorf("training ended in generation %d: expected the second", c.plan.Generation)
				}
			})
		}
	}
}

// garbled is a network that cuts short one message.
type garbled struct {
	Network
	left int // messages with something to cut, until then
}

func (g *garbled) Receive(ctx context.Context, phase uint32) (transport.Message, error) {
	message, err := g.Network.Receive(ctx, phase)
	if err != nil || len(message.Payload) == 0 {
		return message, err
	}
	if g.left--; g.left == 0 {
		message.Payload = message.Payload[:len(message.Payload)/2]
	}
	return message, err
}

func TestAStepThatBreaksWhileEverybodyLivesIsTrainedAgainByTheSameTrainers(t *testing.T) {
	for _, message := range []int{1, 9, 30} {
		c := newCluster(t, testConfig(t))
		c.replan = func([]string) *events.Plan { return twoByThree(c.config) }
		c.start("b", func(_ *node, network Network) Network { return &garbled{network, message} })
		c.begin(twoByThree(c.config), sixNodes...)
		c.expectOracle()
		if c.plan.Generation != 2 || len(c.alive()) != len(sixNodes) {
			t.Errorf("message %d: training ended in generation %d with %d trainers", message, c.plan.Generation, len(c.alive()))
		}
	}
}

func TestTheMicroBatchesOfALostTrainerAreRerouted(t *testing.T) {
	for victim, taker := range map[string]string{"a": "d", "b": "e", "c": "f"} {
		t.Run(victim, func(t *testing.T) {
			c := newCluster(t, testConfig(t))
			c.replan = func([]string) *events.Plan {
				plan := twoByThree(c.config)
				plan.Policy = "reroute"
				plan.Reroutes = []events.Reroute{{From: victim, To: taker, MicroBatches: 4}}
				plan.Sync = syncOf(plan, victim)
				return plan
			}
			c.start(victim, mortally(atThe(1, "send gather")))
			c.begin(twoByThree(c.config), sixNodes...)
			c.expectOracle()
		})
	}
}

// Pipelines of three stages, two and one: each layer of what b and d trained goes to others who hold it, in drawn shares.
func TestInUnequalPipelinesTheMicroBatchesOfLostTrainersAreReroutedLayerByLayer(t *testing.T) {
	unequal := func(config Config) *events.Plan {
		return planOf(config, chain{4, "a b c", []int{2, 4, 6}}, chain{2, "d e", []int{3, 6}}, chain{2, "f", []int{6}})
	}
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			c := newCluster(t, testConfig(t))
			c.replan = func(survivors []string) *events.Plan { return reroutedTo(random, unequal(c.config), survivors) }
			for _, victim := range []string{"b", "d"}[:1+seed%2] {
				uses := 1 + random.IntN(60)
				c.start(victim, mortally(func(use) bool { uses--; return uses == 0 }))
			}
			c.begin(unequal(c.config), sixNodes...)
			c.expectOracle()
		})
	}
}

// reroutedTo is a plan whose lost nodes' micro-batches survivors take over, in drawn shares at each layer.
func reroutedTo(random *rand.Rand, plan *events.Plan, survivors []string) *events.Plan {
	plan.Policy = "reroute"
	var lost []string
	for _, pipeline := range plan.Pipelines {
		for st, stage := range pipeline.Stages {
			if slices.Contains(survivors, stage.Node) {
				continue
			}
			lost = append(lost, stage.Node)
			for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
				var takers []string
				for node, held := range plan.HoldsOfAll() {
					if slices.Contains(survivors, node) && held.First <= layer && layer < held.End {
						takers = append(takers, node)
					}
				}
				slices.Sort(takers)
				for left, i := pipeline.MicroBatches, 0; left > 0; i++ {
					count := 1 + random.IntN(left)
					plan.Reroutes = append(plan.Reroutes, events.Reroute{From: stage.Node, To: takers[i%len(takers)], Stage: st,
						MicroBatches: count, Layers: events.Range{First: layer, End: layer + 1}})
					left -= count
				}
			}
		}
	}
	plan.Sync = syncOf(plan, lost...)
	return plan
}

func TestLosingTrainersAtRandomMoments(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5))
			c := newCluster(t, testConfig(t))
			c.replan = func(survivors []string) *events.Plan { return randomPlan(random, c.config, survivors) }
			stages := random.Perm(3)
			for _, victim := range []int{stages[0], 3 + stages[1]} { // not the two holders of a layer
				uses := 1 + random.IntN(80)
				c.start(sixNodes[victim], mortally(func(use) bool { uses--; return uses == 0 }))
			}
			c.begin(twoByThree(c.config), sixNodes...)
			c.expectOracle()
		})
	}
}

// randomPlan gives every node a place, in two or more pipelines of random lengths, splits and shares.
func randomPlan(random *rand.Rand, config Config, nodes []string) *events.Plan {
	random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	chains := make([]chain, 2+random.IntN(len(nodes)-1))
	for i, node := range nodes {
		in := &chains[random.IntN(len(chains))]
		if i < len(chains) {
			in = &chains[i]
		}
		in.nodes += node + " "
	}
	for range config.GlobalBatch / config.MicroBatch {
		next := &chains[random.IntN(len(chains))]
		for i := range chains {
			if chains[i].microBatches == 0 {
				next = &chains[i]
			}
		}
		next.microBatches++
	}
	for i := range chains {
		cuts := random.Perm(config.Shape.Layers() - 1)[:len(strings.Fields(chains[i].nodes))-1]
		for _, cut := range cuts {
			chains[i].ends = append(chains[i].ends, cut+1)
		}
		slices.Sort(chains[i].ends)
		chains[i].ends = append(chains[i].ends, config.Shape.Layers())
	}
	return planOf(config, chains...)
}
