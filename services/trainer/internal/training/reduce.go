package training

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/schedule"
)

// A group's phases are named by its first layer, which is in no other group.
const phasesPerGroup = 3

func scatterPhase(group schedule.Reduction) uint32 { return uint32(1 + phasesPerGroup*group.First) }
func gatherPhase(group schedule.Reduction) uint32  { return uint32(2 + phasesPerGroup*group.First) }
func spreadPhase(group schedule.Reduction) uint32  { return uint32(3 + phasesPerGroup*group.First) }

// allReduce sums one group's gradients over its members: each sends every other one that member's pieces, adds up its
// own pieces, and sends the sums to all who keep the partition that they are of (a direct reduce-scatter and
// all-gather: 2(g-1)/g of the gradients leave each of g members, in two messages to each other one, where all keep
// all). The sums are whole numbers, so it does not matter in which order they arrive.
type allReduce struct {
	worker   *worker
	group    schedule.Reduction
	summands []summand
}

// summand is what is summed in pieces: a layer's gradients, or the loss.
type summand struct {
	sum *gradient.Accumulator
	cut schedule.Reduction
}

func (s summand) pieces(node string) []schedule.Piece { return s.cut.Pieces(len(s.sum.Sums), node) }

func (w *worker) reduce(ctx context.Context, group schedule.Reduction) error {
	if len(group.Nodes) == 1 {
		return nil
	}
	r := &allReduce{worker: w, group: group, summands: w.summands(group)}
	if err := r.scatter(ctx); err != nil {
		return err
	}
	return r.gather(ctx)
}

// summands returns what a group sums: its layers' gradients and, with the head, the loss.
func (w *worker) summands(group schedule.Reduction) []summand {
	var summands []summand
	for layer := group.First; layer < group.End; layer++ {
		summands = append(summands, summand{w.sums[layer], group})
	}
	if group.End == w.config.Shape.Layers() {
		whole := schedule.Reduction{Group: group.Group, Keepers: [][]string{group.Nodes}}
		summands = append(summands, summand{w.loss, whole})
	}
	return summands
}

// scatter leaves the sums of this member's pieces in their place. Everybody tells everybody how many micro-batches it
// added up.
func (r *allReduce) scatter(ctx context.Context) error {
	for _, node := range r.worker.others(r.group) {
		payload := make([]byte, 0, 8*r.numbersOf(node))
		for _, s := range r.summands {
			payload = appendNumbers(payload, int64(s.sum.Additions))
			for _, piece := range s.pieces(node) {
				payload = appendNumbers(payload, s.sum.Sums[piece.First:piece.End]...)
			}
		}
		if err := r.worker.network.Send(node, scatterPhase(r.group), 0, payload); err != nil {
			return err
		}
	}
	return r.worker.receive(ctx, r.group, scatterPhase(r.group), func(_ string, payload []byte) error {
		values := numbers{left: decode(payload)}
		for _, s := range r.summands {
			for _, additions := range values.next(1) {
				s.sum.Additions += int(additions)
			}
			for _, piece := range s.pieces(r.worker.config.Node) {
				for i, value := range values.next(piece.End - piece.First) {
					s.sum.Sums[piece.First+i] += value
				}
			}
		}
		return values.end()
	})
}

// numbersOf counts what a member is sent: its pieces, and a count of additions for each of what is summed.
func (r *allReduce) numbersOf(node string) int {
	count := len(r.summands)
	for _, s := range r.summands {
		for _, piece := range s.pieces(node) {
			count += piece.End - piece.First
		}
	}
	return count
}

// gather fills in the other members' sums of the partitions that this one keeps.
func (r *allReduce) gather(ctx context.Context) error {
	var sums []byte
	for i, node := range r.worker.others(r.group) {
		if i == 0 || r.group.Spreads() {
			sums = r.sumsFor(node)
		} // else all keep the same
		if err := r.worker.network.Send(node, gatherPhase(r.group), 0, sums); err != nil {
			return err
		}
	}
	return r.worker.receive(ctx, r.group, gatherPhase(r.group), func(from string, payload []byte) error {
		values := numbers{left: decode(payload)}
		for _, s := range r.summands {
			for _, piece := range s.pieces(from) {
				if s.cut.Keeps(r.worker.config.Node, piece.Partition) {
					copy(s.sum.Sums[piece.First:piece.End], values.next(piece.End-piece.First))
				}
			}
		}
		return values.end()
	})
}

// sumsFor are this member's sums of what another one keeps.
func (r *allReduce) sumsFor(node string) []byte {
	sums := make([]byte, 0, 8*r.numbersOf(r.worker.config.Node))
	for _, s := range r.summands {
		for _, piece := range s.pieces(r.worker.config.Node) {
			if s.cut.Keeps(node, piece.Partition) {
				sums = appendNumbers(sums, s.sum.Sums[piece.First:piece.End]...)
			}
		}
	}
	return sums
}

// others returns the other members of a group.
func (w *worker) others(group schedule.Reduction) []string {
	return slices.DeleteFunc(slices.Clone(group.Nodes), func(node string) bool { return node == w.config.Node })
}

// receive takes one message of a phase from every other member; the network delivers no message twice.
func (w *worker) receive(
	ctx context.Context, group schedule.Reduction, phase uint32, take func(from string, payload []byte) error,
) error {
	for range w.others(group) {
		message, err := w.hear(ctx, phase)
		if err != nil {
			return err
		}
		if !slices.Contains(group.Nodes, message.From) {
			return fmt.Errorf("message from %q: expected one of %q", message.From, group.Nodes)
		}
		if err := take(message.From, message.Payload); err != nil {
			return fmt.Errorf("message from %q: %w", message.From, err)
		}
	}
	return nil
}

// numbers are taken from a message in the order in which they were put there.
type numbers struct {
	left  []int64
	short int // numbers that were not there
}

// next returns the next count numbers, or none where there are not as many.
func (n *numbers) next(count int) []int64 {
	if count > len(n.left) {
		n.short += count - len(n.left)
		n.left = nil
		return nil
	}
	taken := n.left[:count]
	n.left = n.left[count:]
	return taken
}

// end fails where there were more numbers, or fewer, than were taken.
func (n *numbers) end() error {
	if n.short > 0 || len(n.left) > 0 {
		return fmt.Errorf("%d numbers too few and %d too many: expected those of one all-reduce", n.short, len(n.left))
	}
	return nil
}

func appendNumbers(destination []byte, values ...int64) []byte {
	for _, value := range values {
		destination = binary.LittleEndian.AppendUint64(destination, uint64(value))
	}
	return destination
}

func decode(encoded []byte) []int64 {
	values := make([]int64, len(encoded)/8)
	for i := range values {
		values[i] = int64(binary.LittleEndian.Uint64(encoded[8*i:]))
	}
	return values
}
