package training

import (
	"context"
	"sync/atomic"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/internal/transport"
)

// phase is what a trainer does in its step, for heartbeats. A step has many waits: who got on since the heartbeat before
// does neither, so that only a layer's pass that does not end counts as computing while others wait.
type phase struct {
	doing atomic.Value  // events.PhaseComputing, events.PhaseWaiting, or "" between steps
	moves atomic.Uint64 // how often that was said anew
	told  atomic.Uint64 // moves, when a heartbeat asked last
}

// enter notes that the trainer got on, and what it does now.
func (p *phase) enter(doing string) {
	p.doing.Store(doing)
	p.moves.Add(1)
}

// tell returns what the trainer has done since it was asked last; empty where it got on, or has not begun a step yet.
func (p *phase) tell() string {
	moves := p.moves.Load()
	if p.told.Swap(moves) != moves || moves == 0 {
		return ""
	}
	return p.doing.Load().(string)
}

// Phase implements agent.Worker.
func (l lentState) Phase() string { return l.worker.phase.tell() }

// hear waits for a message of a phase.
func (w *worker) hear(ctx context.Context, phase uint32) (transport.Message, error) {
	w.phase.enter(events.PhaseWaiting)
	defer w.phase.enter(events.PhaseComputing)
	return w.network.Receive(ctx, phase)
}
