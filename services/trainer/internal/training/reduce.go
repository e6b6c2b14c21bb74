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

// allReduce sums one group's gradients around the ring of its members. First the addends to each member's pieces are passed on, from
// the one behind that member around to it, and each adds its own; then each member's sums are passed on to all who keep the partition
// that they are of (reduce-scatter and all-gather: 2(g-1)/g of the gradients leave each of g members, all for the next one, where all
// keep all). The sums are whole numbers, so the order of the ring does not change them.
type allReduce struct {
	ring
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
	summands := w.summands(group)
	if err := (&allReduce{w.ring(group, scatterPhase(group)), summands}).scatter(ctx); err != nil {
		return err
	}
	return (&allReduce{w.ring(group, gatherPhase(group)), summands}).gather(ctx)
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

// scatter leaves the sums of this member's pieces in their place. With its pieces comes how many micro-batches all others added up.
// The sum that it makes for another member overwrites its own addends, which nobody needs any more.
func (r *allReduce) scatter(ctx context.Context) error {
	additions := make([]int, len(r.summands)) // in what is passed on
	for hop := 1; hop < len(r.members); hop++ {
		if err := r.send(hop, r.addends(r.members[len(r.members)-hop], additions)); err != nil {
			return err
		}
		payload, err := r.receive(ctx, hop)
		if err == nil {
			err = r.add(r.members[len(r.members)-hop-1], payload, additions)
		}
		if err != nil {
			return err
		}
	}
	for i, s := range r.summands {
		s.sum.Additions += additions[i]
	}
	return nil
}

// addends are what this member and those before it have added up for another one's pieces.
func (r *allReduce) addends(of string, additions []int) []byte {
	payload := make([]byte, 0, 8*r.numbersOf(of))
	for i, s := range r.summands {
		payload = appendNumbers(payload, int64(s.sum.Additions+additions[i]))
		for _, piece := range s.pieces(of) {
			payload = appendNumbers(payload, s.sum.Sums[piece.First:piece.End]...)
		}
	}
	return payload
}

// add adds what has come to this member's addends to some member's pieces, and notes how many additions it was.
func (r *allReduce) add(of string, payload []byte, additions []int) error {
	values := numbers{left: decode(payload)}
	for i, s := range r.summands {
		for _, count := range values.next(1) {
			additions[i] = int(count)
		}
		for _, piece := range s.pieces(of) {
			for i, value := range values.next(piece.End - piece.First) {
				s.sum.Sums[piece.First+i] += value
			}
		}
	}
	return r.blame(values.end())
}

// numbersOf counts what is passed on for a member: its pieces, and a count of additions for each of what is summed.
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
	own := make([]byte, 0, 8*r.numbersOf(r.members[0]))
	for _, s := range r.summands {
		for _, piece := range s.pieces(r.members[0]) {
			own = appendNumbers(own, s.sum.Sums[piece.First:piece.End]...)
		}
	}
	return r.pass(ctx, own, r.needs, func(from string, payload []byte) error {
		values := numbers{left: decode(payload)}
		for _, s := range r.summands {
			for _, piece := range s.pieces(from) {
				sums := values.next(piece.End - piece.First)
				if s.cut.Keeps(r.members[0], piece.Partition) {
					copy(s.sum.Sums[piece.First:piece.End], sums)
				}
			}
		}
		return values.end()
	})
}

// needs reports whether a node keeps what some of another one's sums are of.
func (r *allReduce) needs(node, from string) bool {
	return slices.ContainsFunc(r.summands, func(s summand) bool {
		return slices.ContainsFunc(s.pieces(from), func(piece schedule.Piece) bool { return s.cut.Keeps(node, piece.Partition) })
	})
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
