package oracle

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/text"
)

// cluster is a simulated run over several pipelines, all in one goroutine: each holds
// its own copy of every layer, and all that passes between nodes passes as bytes.
type cluster struct {
	t         *testing.T
	random    *rand.Rand
	training  Training
	samples   *text.Text
	pipelines []*pipeline
}

// pipeline is one replica of the model, cut into stages before some layers.
type pipeline struct {
	layers []*model.Layer
	cuts   []bool
	sums   *Sums
}

func newCluster(t *testing.T, training Training, samples *text.Text, seed uint64) *cluster {
	t.Helper()
	c := &cluster{t: t, random: rand.New(rand.NewPCG(seed, 6)), training: training, samples: samples}
	layers, err := NewLayers(training.Shape, training.Seed)
	mustSucceed(t, err)
	c.replan(layers)
	return c
}

// replan moves the layers, as bytes, onto another number of pipelines with other stages.
func (c *cluster) replan(layers []*model.Layer) {
	c.pipelines = make([]*pipeline, 1+c.random.IntN(4))
	for i := range c.pipelines {
		p := &pipeline{sums: NewSums(c.training.Shape)}
		for _, layer := range layers {
			moved, err := model.UnmarshalLayer(model.MarshalLayer(layer))
			mustSucceed(c.t, err)
			p.layers = append(p.layers, moved)
			p.cuts = append(p.cuts, c.random.IntN(2) == 0)
		}
		c.pipelines[i] = p
	}
}

// step trains the pipelines on the step's samples, in any order and however they fall
// to the pipelines, and then exchanges the sums layer by layer.
func (c *cluster) step(step int) (loss float64) {
	for _, p := range c.pipelines {
		p.sums.Reset()
	}
	scratch := model.NewScratch(c.training.Shape)
	for _, i := range c.random.Perm(c.training.GlobalBatch) {
		characters, targets, err := c.samples.Sample(step*c.training.GlobalBatch + i)
		mustSucceed(c.t, err)
		p := c.pipelines[c.random.IntN(len(c.pipelines))]
		p.train(c.t, model.Sample{Characters: characters, Targets: targets}, scratch)
	}
	lossSum := gradient.NewAccumulator(1)
	for _, i := range c.random.Perm(len(c.pipelines)) {
		mustSucceed(c.t, lossSum.MergeBytes(c.pipelines[i].sums.Loss.AppendBytes(nil)))
	}
	for _, p := range c.pipelines {
		for layer := range p.layers {
			p.layers[layer] = c.update(p.layers[layer])
		}
	}
	return lossSum.Mean(0)
}

// update is the all-reduce and the update of one layer on one pipeline.
func (c *cluster) update(layer *model.Layer) *model.Layer {
	total := gradient.NewAccumulator(len(layer.Parameters))
	for _, i := range c.random.Perm(len(c.pipelines)) {
		mustSucceed(c.t, total.MergeBytes(c.pipelines[i].sums.Layers[layer.Index].AppendBytes(nil)))
	}
	next, err := c.training.Adam.Apply(layer, total, c.training.GlobalBatch)
	mustSucceed(c.t, err)
	return next
}

// train runs one sample forward and backward through the stages.
func (p *pipeline) train(t *testing.T, sample model.Sample, scratch *model.Scratch) {
	t.Helper()
	activations := make([]*model.Activations, len(p.layers))
	var between []float32
	var err error
	for i, layer := range p.layers {
		activations[i] = model.NewActivations(layer.Shape, i)
		between, err = layer.Forward(sample, p.send(i, between), activations[i])
		mustSucceed(t, err)
	}
	head := len(p.layers) - 1
	mustSucceed(t, p.sums.Loss.Add([]float32{activations[head].Loss}))
	for i := head; i >= 0; i-- {
		between, err = p.layers[i].Backward(activations[i], between, scratch, p.sums.Layers[i])
		mustSucceed(t, err)
		between = p.send(i, between)
	}
}

// send passes numbers over the boundary before a layer: as bytes where stages part.
func (p *pipeline) send(layer int, values []float32) []float32 {
	if !p.cuts[layer] {
		return values
	}
	var wire []byte
	for _, value := range values {
		wire = binary.LittleEndian.AppendUint32(wire, math.Float32bits(value))
	}
	received := make([]float32, len(values))
	for i := range received {
		received[i] = math.Float32frombits(binary.LittleEndian.Uint32(wire[4*i:]))
	}
	return received
}

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
