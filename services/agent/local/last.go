package local

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/reknit/reknit/services/agent"
)

// lastOrder tells the trainer that nothing is left to train, and waits for the end of its process: by itself, or with its
// agent.
func (t *trainer) lastOrder(why error) {
	order := Order{Order: orderLeft, Reason: why.Error()}
	if errors.Is(why, agent.ErrComplete) && t.made {
		order = Order{Order: orderFinished}
	}
	var err error
	if !t.told {
		_, err = t.turns.give(order)
	}
	if err == nil {
		<-t.ended.Done()
	}
}

// lastWait is how long a trainer that has made the last step is held for those who have not: what it holds may be needed. The trainer goes
// on if nobody says by then that the job is complete. Its agent then gives what is mapped while the trainer lives.
const lastWait = time.Minute

// boundary is that of the session. It fails with errLastWait where a trainer has waited long enough for the others. A step that
// it grants is abandoned when ctx ends, so that the wait alone is bounded.
func (t *trainer) boundary(done uint64) (agent.Orders, error) {
	if !t.made || t.told {
		return t.session.Boundary(t.ended, done, t.state)
	}
	ctx, end := context.WithCancelCause(t.ended)
	timer := time.AfterFunc(lastWait, func() { end(errLastWait) })
	orders, err := t.session.Boundary(ctx, done, t.state)
	if timer.Stop(); err != nil && errors.Is(context.Cause(ctx), errLastWait) {
		err = errLastWait
	}
	return orders, err
}

var errLastWait = errors.New("nobody says that the job is complete")

// tellEnd tells that the last step is made, for no longer than the trainer waits for the others: the hub may be away.
func (t *trainer) tellEnd(step context.Context, done uint64) error {
	units := t.lastDigests(step, done)
	ctx, cancel := context.WithTimeout(t.ended, lastWait)
	defer cancel()
	err := t.session.Digested(ctx, done, true, units)
	if err != nil && t.ended.Err() == nil {
		slog.Warn("the last step is made, and the cluster does not hear of it", "node", t.node, "error", err)
		err = nil
	}
	return err
}
