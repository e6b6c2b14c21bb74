package training

import (
	"context"
	"fmt"

	"github.com/reknit/reknit/services/trainer/schedule"
)

// ring passes a phase's messages around a group, a hop at a time: each member sends to the next one and hears from the one before.
// So a slow link costs nothing where the plan's order has no neighbours use it.
type ring struct {
	worker  *worker
	phase   uint32
	members []string       // in the ring's order, this one first
	early   map[int][]byte // by hop: what came before its turn, as may happen through the hub
}

func (w *worker) ring(group schedule.Reduction, phase uint32) ring {
	return ring{w, phase, group.From(w.config.Node), map[int][]byte{}}
}

func (r *ring) send(hop int, payload []byte) error {
	return r.worker.network.Send(r.members[1], r.phase, uint64(hop), payload)
}

// receive waits for the message of a hop. The network delivers none twice.
func (r *ring) receive(ctx context.Context, hop int) ([]byte, error) {
	before := r.members[len(r.members)-1]
	for {
		if payload, came := r.early[hop]; came {
			delete(r.early, hop)
			return payload, nil
		}
		message, err := r.worker.hear(ctx, r.phase)
		if err != nil {
			return nil, err
		}
		if message.From != before || message.Item < uint64(hop) || message.Item >= uint64(len(r.members)) {
			return nil, fmt.Errorf("message %d from %q: expected %d to %d from %q", message.Item, message.From, hop, len(r.members)-1, before)
		}
		r.early[int(message.Item)] = message.Payload
	}
}

// blame says from whom a wrong message came.
func (r *ring) blame(err error) error {
	if err != nil {
		return fmt.Errorf("message from %q: %w", r.members[len(r.members)-1], err)
	}
	return nil
}

// pass sends what is this member's around, and passes on what is the others' to those behind it, as long as somebody there needs
// it. It takes all that comes by.
func (r *ring) pass(
	ctx context.Context, own []byte, needs func(node, from string) bool, take func(from string, payload []byte) error,
) error {
	count, payload := len(r.members), own
	for hop := 1; hop < count; hop++ {
		if r.goes(hop, (count-hop+1)%count, needs) {
			if err := r.send(hop, payload); err != nil {
				return err
			}
		}
		if !r.goes(hop, count-hop, needs) {
			continue
		}
		var err error
		if payload, err = r.receive(ctx, hop); err == nil {
			err = r.blame(take(r.members[count-hop], payload))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// goes reports whether what is a member's goes on for so many hops: whether who is as far behind it, or farther, needs it.
func (r *ring) goes(hops, member int, needs func(node, from string) bool) bool {
	count := len(r.members)
	for away := count - 1; away >= hops; away-- {
		if needs(r.members[(member+away)%count], r.members[member]) {
			return true
		}
	}
	return false
}
