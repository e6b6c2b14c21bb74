package training

import (
	"context"
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/schedule"
)

// update makes the next version of each layer of a group from the sums.
func (w *worker) update(ctx context.Context, group schedule.Reduction) error {
	if w.config.Shape.Partitions > 0 {
		return w.updateUnits(ctx, group)
	}
	for layer := group.First; layer < group.End; layer++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.phase.enter(events.PhaseComputing)
		next, err := w.adam.Apply(w.state.Trained(layer), w.sums[layer], w.config.GlobalBatch)
		if err != nil {
			return err
		}
		w.state.Advance(next)
	}
	return nil
}

// updateUnits makes the next version of the partitions that this node keeps and, with what the keepers of the others
// send, of the parameters (ZeRO stage 1). All units of the group are a step on, or none is.
func (w *worker) updateUnits(ctx context.Context, group schedule.Reduction) error {
	var parameters, parts []*model.Layer
	for layer := group.First; layer < group.End; layer++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.phase.enter(events.PhaseComputing)
		next := w.state.Trained(layer).Blank()
		parameters = append(parameters, next)
		for _, partition := range w.part.partitions {
			part, err := w.updatePart(layer, partition, next)
			if err != nil {
				return err
			}
			parts = append(parts, part)
		}
	}
	if group.Spreads() {
		if err := w.spread(ctx, group, parameters); err != nil {
			return fmt.Errorf("parameters of layers [%d, %d): %w", group.First, group.End, err)
		}
	}
	for _, next := range append(parameters, parts...) {
		w.state.Advance(next)
	}
	return nil
}

// updatePart returns the next version of a partition, and fills in its parameters.
func (w *worker) updatePart(layer, partition int, next *model.Layer) (*model.Layer, error) {
	shape, sums := w.config.Shape, w.sums[layer]
	first, end := shape.Partition(layer, partition)
	part := &gradient.Accumulator{Sums: sums.Sums[first:end], Additions: sums.Additions}
	return w.adam.ApplyPart(w.state.Trained(shape.Unit(layer, partition)),
		w.state.Trained(layer).Parameters[first:end], next.Parameters[first:end], part, w.config.GlobalBatch)
}

// spread passes this member's pieces of the parameters on to those who keep no moments for them, and fills in theirs.
func (w *worker) spread(ctx context.Context, group schedule.Reduction, parameters []*model.Layer) error {
	var own []byte
	for _, next := range parameters {
		for _, piece := range group.Pieces(len(next.Parameters), w.config.Node) {
			own = appendFloats(own, next.Parameters[piece.First:piece.End])
		}
	}
	needs := func(node, from string) bool {
		return slices.ContainsFunc(group.Pieces(len(parameters[0].Parameters), from),
			func(piece schedule.Piece) bool { return !group.Keeps(node, piece.Partition) })
	}
	r := w.ring(group, spreadPhase(group))
	return r.pass(ctx, own, needs, func(from string, payload []byte) error {
		values := floats(payload)
		for _, next := range parameters {
			for _, piece := range group.Pieces(len(next.Parameters), from) {
				count := piece.End - piece.First
				if count > len(values) {
					return fmt.Errorf("%d numbers: expected %d more", len(values), count)
				}
				if !group.Keeps(w.config.Node, piece.Partition) {
					copy(next.Parameters[piece.First:piece.End], values)
				}
				values = values[count:]
			}
		}
		if len(values) > 0 {
			return fmt.Errorf("%d numbers too many", len(values))
		}
		return nil
	})
}
