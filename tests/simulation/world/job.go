package world

import (
	"cmp"
	"fmt"

	"github.com/reknit/reknit/events"
)

// job is what is trained, and the oracle of it: what each unit of the state is after so many steps, whoever trained
// it. A unit is the hash chain of what trained it, so that a lost update, a doubled step, a stale copy and a plan
// that was half applied all show as another digest.
type job struct {
	events.Job
	seed   uint64
	chains [][]uint64 // by unit: its value after 0, 1, 2, ... steps of the newest life, as far as they were asked for
	lives  []lifetime // of training, the newest last
}

func newJob(c Cluster) *job {
	j := &job{seed: c.Seed, chains: make([][]uint64, c.Layers*(1+c.Partitions)), lives: []lifetime{{}}}
	j.Job = events.Job{
		Digest: events.Digest(fmt.Append(nil, "job ", c.Seed)), Steps: c.Steps, Kind: c.Kind, GlobalBatch: 8, MicroBatch: 1,
		OptimizerPartitions: c.Partitions, Stages: events.Bounds{Min: c.Stages},
	}
	if c.SamplesPerNode > 0 {
		j.BatchRule = &events.BatchRule{SamplesPerNode: c.SamplesPerNode, LearningRate: "linear", WarmUpSteps: 5}
	}
	pass := cmp.Or(c.LayerSeconds, 0.03)
	for layer := range c.Layers {
		bytes := int64(1+layer%2) << 20
		j.Layers = append(j.Layers, events.LayerProfile{
			ParameterBytes: bytes, OptimizerBytes: 2 * bytes, GradientBytes: bytes, ActivationBytes: 1 << 10,
			OutputBytes: 1 << 10, ForwardSeconds: pass / 3, BackwardSeconds: 2 * pass / 3,
		})
	}
	for unit := range j.chains {
		j.chains[unit] = []uint64{mix(c.Seed, uint64(unit))}
	}
	return j
}

// value is the oracle's: the unit after so many steps of undisturbed training.
func (j *job) value(unit int, step uint64) uint64 {
	for chain := j.chains[unit]; uint64(len(chain)) <= step; chain = j.chains[unit] {
		last := len(chain) - 1
		j.chains[unit] = append(chain, j.next(len(j.lives)-1, version{uint64(last), chain[last]}).value)
	}
	return j.chains[unit][step]
}

// next trains a unit one step, in a life. The sum over the micro-batches does not depend on who computed it.
func (j *job) next(life int, v version) version {
	return version{v.step + 1, mix(v.value, mix(j.seed+uint64(j.trainedIn(life, v.step)), v.step))}
}

// mix is splitmix64's finalizer over both.
func mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// digestOf writes a value as the digest of the bytes that it stands for.
func digestOf(value uint64) string { return fmt.Sprintf("sha256:%064x", value) }
