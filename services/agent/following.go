package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// following is layers that move in a negotiation while training goes on.
type following struct {
	*moves
	cancel  context.CancelFunc
	trail   *trail   // of the layers that this node gives
	pursuit *pursuit // of those that it is given; nil where there are none
}

// lend notes the trainer's state, which layers are followed with.
func (s *Session) lend(state State) error {
	if !s.config.PreCopies || s.follower != nil {
		return nil
	}
	follower, able := state.(PreCopier)
	if !able {
		return fmt.Errorf("agent: Config.Follows: expected a state that is a Follower, got %T", state)
	}
	s.follower = follower
	s.answer()
	return nil
}

// follow begins to give and to take layers, until the negotiation ends. Called with the mutex held.
func (s *Session) follow(start heard[events.PreCopyStart]) {
	ctx, cancel := context.WithCancel(s.context)
	t := s.newMoves(ctx, start.event, events.Schedule{Negotiation: start.payload.Negotiation, Plan: start.payload.Plan})
	f := &following{moves: t, cancel: cancel, trail: newTrail(t, s.view.done)}
	s.view.following = f
	go func() {
		defer close(t.retired)
		f.trail.run()
		<-t.before
		f.trail.retireAll(slices.Collect(maps.Keys(f.trail.held)))
	}()
	if len(t.wanted()) > 0 {
		pursuing, cancel := context.WithCancel(ctx)
		f.pursuit = newPursuit(t, s.follower, cancel)
		go f.pursuit.run(pursuing)
	}
}

// leaveTrail exports what the last step left for those who follow. Called and returning with the mutex held, which it gives up
// meanwhile.
func (s *Session) leaveTrail(state State) {
	trail, done := s.view.following.trail, s.view.done
	s.mutex.Unlock()
	defer s.mutex.Lock()
	trail.leave(done, state.(PreCopier))
	s.wake() // Boundary looks what else is due
}

// takeFollowed loads the layers that this node followed to the stop step, and returns the transfers that are left.
func (t *moves) takeFollowed(ctx context.Context, wanted []events.Transfer, state State, receipt *events.Receipt) ([]events.Transfer, error) {
	if t.ahead == nil || t.ahead.pursuit == nil {
		return wanted, nil
	}
	layers := t.ahead.pursuit.at(ctx, t.StopStep)
	var left []events.Transfer
	for _, transfer := range wanted {
		taken, err := t.loadFollowed(ctx, transfer, layers[transfer.Unit], state, receipt)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", transfer.Unit, err)
		}
		if !taken {
			left = append(left, transfer)
		}
	}
	receipt.Sources = t.ahead.pursuit.received()
	return left, nil
}

// loadFollowed loads a layer that was followed, and reports false where it is not what its holders have.
func (t *moves) loadFollowed(ctx context.Context, transfer events.Transfer, data []byte, state State, receipt *events.Receipt) (bool, error) {
	if data == nil {
		return false, nil
	}
	offers, err := t.awaitOffers(ctx, transfer)
	if err != nil {
		return false, err
	}
	loaded, err := (&arrival{offer: offers[0], data: data}).load(state)
	if errors.Is(err, errOtherBytes) {
		slog.Error("a layer that was followed is not what its holders have; it is fetched", "node", t.config.Node, "layer", transfer.Unit, "error", err)
		return false, nil
	}
	if err == nil {
		receipt.Units = append(receipt.Units, loaded)
	}
	return true, err
}
