package training

import (
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/internal/state"
	"github.com/reknit/reknit/services/trainer/model"
)

// followed is the state as it is lent to the session, which may have others follow its layers.
type followed struct {
	*state.State
	worker *worker
}

var _ agent.PreCopier = followed{}

// Change returns what the step that ended at this number of completed steps did to a layer. Only the last step's is
// there, and only until another one begins or a plan is adopted.
func (f followed) Change(layer int, step uint64) ([]byte, error) {
	if step == 0 || f.worker.summed != step {
		return nil, fmt.Errorf("change of layer %d at step %d: expected the step just completed, %d (0: none)", layer, step, f.worker.summed)
	}
	trained := f.Trained(layer)
	if trained == nil {
		return nil, fmt.Errorf("change of layer %d at step %d: expected one that is trained here, %+v", layer, step, f.worker.layers)
	}
	shape := f.worker.config.Shape
	sums := f.worker.sums[shape.LayerOf(layer)]
	switch {
	case shape.Partitions == 0:
	case layer < shape.Layers():
		return model.MarshalLayer(trained), nil
	default:
		first, end := shape.Partition(shape.LayerOf(layer), layer/shape.Layers()-1)
		sums = &gradient.Accumulator{Sums: sums.Sums[first:end], Additions: sums.Additions}
	}
	return model.MarshalChange(layer, int(step), f.worker.adam().LearningRate, sums), nil
}

// Adopt may bring other layers than those that were summed.
func (f followed) Adopt(layers []events.Range, step uint64) error {
	f.worker.summed = 0
	return f.State.Adopt(layers, step)
}

// Forget drops what was summed, too.
func (f followed) Forget() {
	f.worker.summed = 0
	f.State.Forget()
}

// Apply returns the canonical bytes of a layer one step on. It touches nothing but its arguments.
func (f followed) Apply(layer int, data, change []byte) ([]byte, error) {
	before, err := model.UnmarshalLayer(data)
	if err != nil {
		return nil, err
	}
	if before.Index != layer || before.Shape != f.worker.config.Shape {
		return nil, fmt.Errorf("data are of layer %d of %+v: expected layer %d of %+v", before.Index, before.Shape, layer, f.worker.config.Shape)
	}
	next, err := f.worker.config.Adam.Follow(before, change, f.worker.config.GlobalBatch)
	if err != nil {
		return nil, err
	}
	return model.MarshalLayer(next), nil
}
