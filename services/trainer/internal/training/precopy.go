package training

import (
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/internal/state"
	"github.com/reknit/reknit/services/trainer/model"
)

// lentState is the state as it is lent to the session: other nodes may pre-copy its units while they are trained.
type lentState struct {
	*state.State
	worker *worker
}

var (
	_ agent.PreCopier = lentState{}
	_ agent.Worker    = lentState{}
)

// Change returns what the step that ended at this number of completed steps did to a unit. Only the last step's change
// is there, and only until another step begins or a plan is adopted.
func (l lentState) Change(unit int, step uint64) ([]byte, error) {
	if step == 0 || l.worker.summed != step {
		return nil, fmt.Errorf("change of unit %d at step %d: expected the step just completed, %d (0: none)",
			unit, step, l.worker.summed)
	}
	trained := l.Trained(unit)
	if trained == nil {
		return nil, fmt.Errorf("change of unit %d at step %d: expected one that is trained here, of layers %+v",
			unit, step, l.worker.part.layers)
	}
	shape := l.worker.config.Shape
	sums := l.worker.sums[shape.LayerOf(unit)]
	switch {
	case shape.Partitions == 0:
	case unit < shape.Layers():
		return model.MarshalLayer(trained), nil
	default:
		first, end := shape.Partition(shape.LayerOf(unit), unit/shape.Layers()-1)
		sums = &gradient.Accumulator{Sums: sums.Sums[first:end], Additions: sums.Additions}
	}
	return model.MarshalChange(unit, int(step), l.worker.adam.LearningRate, sums), nil
}

// Adopt may bring other units than those that were summed.
func (l lentState) Adopt(units []events.Range, step uint64) error {
	l.worker.summed = 0
	return l.State.Adopt(units, step)
}

// Forget drops what was summed, too.
func (l lentState) Forget() {
	l.worker.summed = 0
	l.State.Forget()
}

// Apply returns the canonical bytes of a unit one step on. It touches nothing but its arguments.
func (l lentState) Apply(unit int, data, change []byte) ([]byte, error) {
	before, err := model.UnmarshalLayer(data)
	if err != nil {
		return nil, err
	}
	config := l.worker.config
	if before.Index != unit || before.Shape != config.Shape {
		return nil, fmt.Errorf("data are of unit %d of %+v: expected unit %d of %+v",
			before.Index, before.Shape, unit, config.Shape)
	}
	next, err := config.Adam.ApplyChange(before, change, config.GlobalBatch)
	if err != nil {
		return nil, err
	}
	return model.MarshalLayer(next), nil
}
