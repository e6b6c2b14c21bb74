package recovery

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/policy"
)

// cell is Chameleon's own setting (V-B: 32 devices, a tenth of which fails in an hour, no repair, nine hours) with what it leaves
// open: four stages by eight pipelines, 64 micro-batches, a link's bytes a second, and what a restart takes.
type cell struct{ bytesPerSecond, restartSeconds float64 }

// run is the samples a second that a policy trains over a drawn nine hours, and how often it rerouted.
func (c cell) run(named policy.Policy, seed uint64) (samplesPerSecond float64, rerouted int) {
	const hours, perHour, devices = 9, 0.1, 32
	random := rand.New(rand.NewPCG(seed, 35))
	s := c.healthy(devices)
	left, step, trained := hours*3600.0, 0.0, 0.0
	for {
		s.SecondsBetweenFailures = 3600 / perHour / float64(len(s.Nodes))
		candidates, err := named.Answer(s)
		if candidates, err = policy.Weigh(s, candidates, err); err != nil {
			return trained / (hours * 3600), rerouted // what is left of the nodes holds no model
		}
		taken := candidates[0]
		if len(taken.Reroutes) > 0 {
			rerouted++
		}
		step, s.Current = taken.StepSeconds, taken.Pipelines
		until := min(left, random.ExpFloat64()*s.SecondsBetweenFailures)
		trained += max(0, until-taken.TransitionSeconds-step/2) / step * float64(s.GlobalBatch) // half a step is lost
		if left -= until; left <= 0 {
			return trained / (hours * 3600), rerouted
		}
		at := random.IntN(len(s.Nodes))
		s.Nodes, s.MemoryBytes = slices.Delete(slices.Clone(s.Nodes), at, at+1), s.MemoryBytes[1:]
	}
}

func (c cell) healthy(devices int) policy.Situation {
	const layers, stages = 32, 4
	s := policy.Situation{
		MicroBatches: 64, GlobalBatch: 64, MinReplicas: 1, SwitchSeconds: 0.05, RestartSeconds: c.restartSeconds,
		Network: policy.Network{
			TransferSeconds: 33.5e6/c.bytesPerSecond + 1e-5, BytesPerSecond: c.bytesPerSecond, LatencySeconds: 1e-5, ActivationBytes: 33_500_000,
		},
	}
	for range layers {
		s.Layers = append(s.Layers, estimate.Layer{ForwardSeconds: 0.0129, BackwardSeconds: 0.0258, StaticBytes: 3_240e6, ActivationBytes: 600e6})
		s.StateBytes, s.GradientBytes = append(s.StateBytes, 2_835e6), append(s.GradientBytes, 405e6)
	}
	for p := range devices / stages {
		pipeline := policy.Pipeline{MicroBatches: 64 * stages / devices}
		for st := range stages {
			node := fmt.Sprintf("n%d", p*stages+st)
			s.Nodes, s.MemoryBytes = append(s.Nodes, node), append(s.MemoryBytes, 64e9)
			pipeline.Stages = append(pipeline.Stages, policy.Stage{Node: node,
				Layers: estimate.Range{First: st * layers / stages, End: (st + 1) * layers / stages}})
		}
		s.Current = append(s.Current, pipeline)
	}
	return s
}

// The choice is of each loss by itself, as in the paper. On these traces it is no worse than either policy alone by more than a hundredth;
// of 48 it was so on 47 (services/planner/README.md).
func TestTheAdaptiveChoiceIsAsGoodAsEachPolicyAloneAndSomewhereBetterThanBoth(t *testing.T) {
	better := 0
	for _, c := range []cell{{25e9, 1.93}, {1.4e9, 120}, {0.125e9, 120}} {
		for seed := range uint64(2) {
			rates, rerouted := map[string]float64{}, 0
			for _, named := range policy.Policies {
				rate, times := c.run(named, seed)
				if rates[named.Name] = rate; named.Name == policy.Adaptive.Name {
					rerouted = times
				}
			}
			adaptive, best := rates["adaptive"], max(rates["repipeline"], rates["reroute"])
			t.Logf("%.4g GB/s, restart %v s, seed %d: adaptive %.3f samples/s (rerouted %d times), repipeline %.3f, reroute %.3f: %.4f of the better",
				c.bytesPerSecond/1e9, c.restartSeconds, seed, adaptive, rerouted, rates["repipeline"], rates["reroute"], adaptive/best)
			if adaptive < 0.99*best {
				t.Errorf("%+v, seed %d: %v", c, seed, rates)
			}
			if adaptive > 1.005*best {
				better++
			}
		}
	}
	if better == 0 {
		t.Error("adaptive is nowhere better than both: the choice is worth nothing")
	}
}
