package training

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/internal/state"
	"github.com/reknit/reknit/services/trainer/model"
)

// preCopier applies, behind the trainers' backs, every change that they tell.
type preCopier struct {
	*testing.T
	applied sync.WaitGroup
	mutex   sync.Mutex
	changes int // that were told and led to the trained layer
}

// look asks for the changes of every layer at a boundary: those of the layers held where a step was completed, and none
// otherwise.
func (p *preCopier) look(n *node, done uint64, lent agent.State) {
	for layer := range n.cluster.config.Shape.Units() {
		change, err := lent.(lentState).Change(layer, done)
		after, lacked := lent.Export(layer, done)
		if (err == nil) != (n.completed && lacked == nil) {
			p.Errorf("%s, layer %d at step %d, step completed %v, layer held %v: error is %v",
				n.name, layer, done, n.completed, lacked == nil, err)
		}
		for _, other := range []uint64{0, done - 1, done + 1} {
			if _, err := lent.(lentState).Change(layer, other); err == nil {
				p.Errorf("%s at step %d told the change of step %d", n.name, done, other)
			}
		}
		if err != nil {
			continue
		}
		before, err := lent.Export(layer, done-1)
		if err != nil {
			p.Error(err)
		}
		p.applied.Go(func() { p.apply(lent.(lentState), layer, before, change, after) })
	}
}

func (p *preCopier) apply(lent lentState, layer int, before, change, after []byte) {
	got, err := lent.Apply(layer, before, change)
	if err != nil || !bytes.Equal(got, after) {
		p.Errorf("layer %d: not the trained one, error is %v", layer, err)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.changes++
}

func preCopy(t *testing.T, c *cluster) *preCopier {
	p := &preCopier{T: t}
	c.lent = p.look
	return p
}

func (p *preCopier) expect(changes int) {
	p.Helper()
	p.applied.Wait()
	if p.changes != changes {
		p.Errorf("%d layers were pre-copied by a step: expected %d", p.changes, changes)
	}
}

func TestLayersArePreCopiedThroughPlansAndLearningRates(t *testing.T) {
	config := testConfig(t)
	config.Steps = 6
	c := newCluster(t, config)
	p := preCopy(t, c)
	c.pauses = []uint64{2, 4}
	c.begin(planOf(config, chain{8, "a", []int{6}}), "a")
	slower := planOf(config, chain{5, "b a", []int{4, 6}}, chain{3, "c", []int{6}})
	slower.LearningRateScale = 0.375
	c.begin(slower, "b", "c")
	c.begin(planOf(config, chain{8, "c b", []int{1, 6}}))
	c.finish()
	p.expect(2*6 + 2*12 + 2*6)
}

func TestAStepThatIsGivenUpHasNoChange(t *testing.T) {
	for _, moment := range []string{"send forward", "send backward", "send scatter", "send gather", "received gather"} {
		t.Run(moment, func(t *testing.T) {
			c := newCluster(t, testConfig(t))
			p := preCopy(t, c)
			c.replan = twoAndThree(c.config)
			c.start("b", mortally(atThe(1, moment)))
			c.begin(twoByThree(c.config), sixNodes...)
			c.expectOracle()
			p.applied.Wait()
		})
	}
}

func TestAnAdoptedPlanHasNoChange(t *testing.T) {
	config := testConfig(t)
	held := state.New(config.Shape, config.Seed)
	lent := lentState{held, newWorker(config, nil, held)}
	if err := lent.Adopt([]events.Range{{End: 6}}, 0); err != nil {
		t.Fatal(err)
	}
	lent.worker.take(assignment{layers: events.Range{End: 6}})
	lent.worker.summed = 7
	if _, err := lent.Change(0, 7); err != nil {
		t.Fatalf("the change before: %v", err)
	}
	if _, err := lent.Change(6, 7); err == nil {
		t.Error("the change of a layer that is not trained was told")
	}
	if err := lent.Adopt([]events.Range{{End: 6}}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := lent.Change(0, 7); err == nil {
		t.Error("a change from before the plan was told")
	}
}

func TestOnlyTheLayersOwnChangeIsApplied(t *testing.T) {
	config := testConfig(t)
	held := state.New(config.Shape, config.Seed)
	lent := lentState{held, newWorker(config, nil, held)}
	bytesOf := func(shape model.Shape, layer int) []byte {
		made, err := model.NewLayer(shape, layer, 1)
		if err != nil {
			t.Fatal(err)
		}
		return model.MarshalLayer(made)
	}
	change := func(layer, step, additions int) []byte {
		sums := gradient.NewAccumulator(config.Shape.Parameters(layer))
		sums.Additions = additions
		return model.MarshalChange(layer, step, 1e-3, sums)
	}
	foreign, data, good := config.Shape, bytesOf(config.Shape, 1), change(1, 1, config.GlobalBatch)
	foreign.Context++
	if _, err := lent.Apply(1, data, good); err != nil {
		t.Fatalf("the change before: %v", err)
	}
	for name, c := range map[string]struct {
		layer        int
		data, change []byte
		named        string
	}{
		"another layer's bytes":  {2, data, change(2, 1, config.GlobalBatch), "unit 1"},
		"another layer's change": {1, data, change(2, 1, config.GlobalBatch), "layer 2"},
		"another shape":          {1, bytesOf(foreign, 1), good, "Context:4"},
		"a step left out":        {1, data, change(1, 2, config.GlobalBatch), "step 2"},
		"half the batch":         {1, data, change(1, 1, config.GlobalBatch/2), "4 samples"},
		"half the data":          {1, data[:len(data)/2], good, "bytes"},
		"half the change":        {1, data, good[:len(good)/2], "sums["},
	} {
		if _, err := lent.Apply(c.layer, c.data, c.change); err == nil || !strings.Contains(err.Error(), c.named) {
			t.Errorf("%s: error is %v: expected one that names %q", name, err, c.named)
		}
	}
}
