package training

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/schedule"
)

// allReduce sums one group's gradients over its members: each sends every other one that member's slice, adds up its
// own slice, and sends the sum to all (a direct reduce-scatter and all-gather: 2(g-1)/g of the gradients leave each of
// g members, in two messages to each other one). The sums are whole numbers, so it does not matter in which order
// they arrive.
type allReduce struct {
	*worker
	group  schedule.Reduction
	vector []int64 // everything to be summed, in one piece
}

func (w *worker) reduce(ctx context.Context, group schedule.Reduction) error {
	if len(group.Nodes) == 1 {
		return nil
	}
	accumulators := w.accumulators(group)
	r := &allReduce{worker: w, group: group, vector: flatten(accumulators)}
	if err := r.scatter(ctx); err != nil {
		return err
	}
	if err := r.gather(ctx); err != nil {
		return err
	}
	unflatten(r.vector, accumulators)
	return nil
}

// accumulators returns what a group sums: its layers' gradients and, with the head, the loss.
func (w *worker) accumulators(group schedule.Reduction) []*gradient.Accumulator {
	var accumulators []*gradient.Accumulator
	for layer := group.First; layer < group.End; layer++ {
		accumulators = append(accumulators, w.sums[layer])
	}
	if group.End == w.config.Shape.Layers() {
		accumulators = append(accumulators, w.loss)
	}
	return accumulators
}

// slice returns the part of the vector that a member sums.
func (r *allReduce) slice(node string) []int64 {
	first, end := schedule.Slice(len(r.vector), len(r.group.Nodes), slices.Index(r.group.Nodes, node))
	return r.vector[first:end]
}

// scatter leaves the sum of this member's slice in the vector.
func (r *allReduce) scatter(ctx context.Context) error {
	// A group's phases are named by its first layer, which is in no other group.
	phase := uint32(1 + 2*r.group.First)
	for _, node := range r.others() {
		if err := r.network.Send(node, phase, 0, encode(r.slice(node))); err != nil {
			return err
		}
	}
	own := r.slice(r.config.Node)
	return r.receive(ctx, phase, func(_ string, part []int64) error {
		if len(part) != len(own) {
			return fmt.Errorf("slice of %d numbers: expected %d", len(part), len(own))
		}
		for i, value := range part {
			own[i] += value
		}
		return nil
	})
}

// gather fills the rest of the vector with the other members' sums.
func (r *allReduce) gather(ctx context.Context) error {
	phase := uint32(2 + 2*r.group.First)
	sum := encode(r.slice(r.config.Node))
	for _, node := range r.others() {
		if err := r.network.Send(node, phase, 0, sum); err != nil {
			return err
		}
	}
	return r.receive(ctx, phase, func(from string, part []int64) error {
		slice := r.slice(from)
		if len(part) != len(slice) {
			return fmt.Errorf("sum of %d numbers: expected %d", len(part), len(slice))
		}
		copy(slice, part)
		return nil
	})
}

// others returns the other members.
func (r *allReduce) others() []string {
	return slices.DeleteFunc(slices.Clone(r.group.Nodes), func(node string) bool { return node == r.config.Node })
}

// receive takes one message of a phase from every other member; the network delivers no message twice.
func (r *allReduce) receive(ctx context.Context, phase uint32, take func(from string, part []int64) error) error {
	for range r.others() {
		message, err := r.network.Receive(ctx, phase)
		if err != nil {
			return err
		}
		if !slices.Contains(r.group.Nodes, message.From) {
			return fmt.Errorf("message from %q: expected one of %q", message.From, r.group.Nodes)
		}
		if err := take(message.From, decode(message.Payload)); err != nil {
			return fmt.Errorf("message from %q: %w", message.From, err)
		}
	}
	return nil
}

// flatten lays accumulators one after another: of each its additions, so that they are summed too, and its sums.
func flatten(accumulators []*gradient.Accumulator) []int64 {
	length := 0
	for _, accumulator := range accumulators {
		length += 1 + len(accumulator.Sums)
	}
	vector := make([]int64, 0, length)
	for _, accumulator := range accumulators {
		vector = append(vector, int64(accumulator.Additions))
		vector = append(vector, accumulator.Sums...)
	}
	return vector
}

// unflatten is the inverse of flatten.
func unflatten(vector []int64, accumulators []*gradient.Accumulator) {
	for _, accumulator := range accumulators {
		accumulator.Additions = int(vector[0])
		copy(accumulator.Sums, vector[1:])
		vector = vector[1+len(accumulator.Sums):]
	}
}

func encode(values []int64) []byte {
	encoded := make([]byte, 0, 8*len(values))
	for _, value := range values {
		encoded = binary.LittleEndian.AppendUint64(encoded, uint64(value))
	}
	return encoded
}

func decode(encoded []byte) []int64 {
	values := make([]int64, len(encoded)/8)
	for i := range values {
		values[i] = int64(binary.LittleEndian.Uint64(encoded[8*i:]))
	}
	return values
}
