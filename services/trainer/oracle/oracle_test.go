package oracle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/text"
)

// smallTraining takes some milliseconds. Its steps take more samples than its text has
// windows, so that the run crosses from one epoch into the next.
func smallTraining(t *testing.T) (Training, *text.Text) {
	t.Helper()
	shape := model.Shape{Context: 4, Window: 5, Width: 12, Hidden: 18, Blocks: 3}
	var content strings.Builder
	for i := range 60 {
		fmt.Fprintf(&content, "%d rays of light refract and %d reflect. ", i*i%17, i%5)
	}
	samples, err := text.New([]byte(content.String()), shape.Context, shape.Window, 3)
	mustSucceed(t, err)
	shape.Vocabulary = len(samples.Vocabulary())
	training := Training{Shape: shape, Adam: model.DefaultAdam(), Seed: 11, GlobalBatch: 12, Steps: 50}
	if windows := samples.Windows(); windows >= training.GlobalBatch*training.Steps {
		t.Fatalf("the text has %d windows: expected fewer than the training's samples", windows)
	}
	return training, samples
}

func TestAnyPipelinesOrdersAndMovesComeToTheOraclesDigest(t *testing.T) {
	training, samples := smallTraining(t)
	want, wantLosses, err := Run(training, samples, nil)
	mustSucceed(t, err)
	for seed := range uint64(8) {
		c := newCluster(t, training, samples, seed)
		var losses []float64
		for step := range training.Steps {
			if c.random.IntN(10) == 0 {
				c.replan(c.pipelines[c.random.IntN(len(c.pipelines))].layers)
			}
			losses = append(losses, c.step(step))
		}
		for i, p := range c.pipelines {
			if got := Digest(p.layers, 0); got != want {
				t.Errorf("seed %d: pipeline %d has digest %s: expected %s", seed, i, got, want)
			}
		}
		if !slices.Equal(losses, wantLosses) {
			t.Errorf("seed %d: losses are %v: expected %v", seed, losses, wantLosses)
		}
	}
}

func TestAFaultInOneStepShowsInTheDigest(t *testing.T) {
	training, samples := smallTraining(t)
	want, _, err := Run(training, samples, nil)
	mustSucceed(t, err)
	const faulty = 20
	for name, fault := range map[string]func(c *cluster, before []*model.Layer){
		"none":              func(*cluster, []*model.Layer) {},
		"a lost update":     func(c *cluster, before []*model.Layer) { c.replan(before) },
		"another's samples": func(c *cluster, before []*model.Layer) { c.replan(before); c.step(faulty + 1) },
		"a step done twice": func(c *cluster, before []*model.Layer) { c.step(faulty) },
		"a stale layer": func(c *cluster, before []*model.Layer) {
			layers := slices.Clone(c.pipelines[0].layers)
			layers[2] = before[2]
			c.replan(layers)
		},
	} {
		c := newCluster(t, training, samples, 1)
		for step := range training.Steps {
			before := slices.Clone(c.pipelines[0].layers)
			c.step(step)
			if step == faulty {
				fault(c, before)
			}
		}
		if same := Digest(c.pipelines[0].layers, 0) == want; same != (name == "none") {
			t.Errorf("fault %q: digest equal to the oracle's is %v", name, same)
		}
	}
}

func TestAStepDoneAgainFromTheKeptLayersComesToTheSame(t *testing.T) {
	training, samples := smallTraining(t)
	want, _, err := Run(training, samples, nil)
	mustSucceed(t, err)
	layers, err := NewLayers(training.Shape, training.Seed)
	mustSucceed(t, err)
	worker := NewWorker(training.Shape)
	for step := range training.Steps {
		first := step * training.GlobalBatch
		var next []*model.Layer
		for range 2 { // the first attempt is thrown away: a roll-back by one step
			worker.Sums.Reset()
			mustSucceed(t, worker.AccumulateRange(layers, samples, first, first+training.GlobalBatch))
			next, err = Update(layers, worker.Sums, training.Adam, training.GlobalBatch)
			mustSucceed(t, err)
		}
		layers = next
	}
	if got := Digest(layers, 0); got != want {
		t.Errorf("digest is %s: expected %s", got, want)
	}
}

func TestParallelWorkersComeToTheOraclesDigest(t *testing.T) {
	training, samples := smallTraining(t)
	want, _, err := Run(training, samples, nil)
	mustSucceed(t, err)
	layers, err := NewLayers(training.Shape, training.Seed)
	mustSucceed(t, err)
	workers := []*Worker{NewWorker(training.Shape), NewWorker(training.Shape), NewWorker(training.Shape)}
	share := training.GlobalBatch / len(workers)
	for step := range training.Steps {
		var group sync.WaitGroup
		failures := make([]error, len(workers))
		for i, worker := range workers {
			group.Go(func() {
				worker.Sums.Reset()
				first := step*training.GlobalBatch + i*share
				failures[i] = worker.AccumulateRange(layers, samples, first, first+share)
			})
		}
		group.Wait()
		for i, failure := range failures {
			mustSucceed(t, failure)
			if i > 0 {
				mustSucceed(t, workers[0].Sums.Merge(workers[i].Sums))
			}
		}
		layers, err = Update(layers, workers[0].Sums, training.Adam, training.GlobalBatch)
		mustSucceed(t, err)
	}
	if got := Digest(layers, 0); got != want {
		t.Errorf("digest is %s: expected %s", got, want)
	}
}

func TestTheReportHearsEveryLossInOrder(t *testing.T) {
	training, samples := smallTraining(t)
	var heard []float64
	_, losses, err := Run(training, samples, func(step int, loss float64) {
		if step != len(heard) {
			t.Errorf("step %d was reported after %d others", step, len(heard))
		}
		heard = append(heard, loss)
	})
	mustSucceed(t, err)
	if len(losses) != training.Steps || !slices.Equal(heard, losses) {
		t.Errorf("heard %v: expected %v", heard, losses)
	}
}

func TestATrainingThatCannotRunIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Training){
		"no batch":                  func(t *Training) { t.GlobalBatch = 0 },
		"negative steps":            func(t *Training) { t.Steps = -1 },
		"a shape out of range":      func(t *Training) { t.Shape.Width = 0 },
		"another context":           func(t *Training) { t.Shape.Context++ },
		"a smaller vocabulary":      func(t *Training) { t.Shape.Vocabulary = 2 },
		"no learning rate":          func(t *Training) { t.Adam.LearningRate = 0 },
		"a batch beyond any sum":    func(t *Training) { t.GlobalBatch = 1 << 15 },
		"a learning rate too large": func(t *Training) { t.Adam.LearningRate = 1e30 },
	} {
		training, samples := smallTraining(t)
		spoil(&training)
		if _, _, err := Run(training, samples, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The digest came out of amd64 (GOAMD64=v1, v3 and v4) and 386. It changes only with
// the model's definition: v3 and arm64 fuse any product that no conversion rounds.
func TestTheDigestIsTheSameOnEveryProcessor(t *testing.T) {
	const want = "sha256:0ca0e53248a67740bd4b59bd1dca9ee024f21317cf8b8bc562683ec586598f6e"
	training, samples := smallTraining(t)
	got, _, err := Run(training, samples, nil)
	mustSucceed(t, err)
	if got != want {
		t.Errorf("digest is %s: expected %s", got, want)
	}
}
