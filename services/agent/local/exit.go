package local

import (
	"context"
	"log/slog"
	"time"
)

const tellTimeout = 2 * time.Second // while the hub is away, the trainer's silence tells the same later

// exited tells the cluster that the trainer is gone.
func (t *trainer) exited(how exit) {
	if how.stood > 0 {
		t.session.Stood(how.stood)
	}
	if !t.keeps {
		t.tellExit(how.how, how.code)
		return
	}
	t.telling.Lock()
	defer t.telling.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ended), tellTimeout)
	defer cancel()
	err := t.session.Failed(ctx, how.how, how.code, how.inStep, t.state == nil || t.state.leaves()) // a holder leaves what it keeps
	if err != nil {
		slog.Warn("the trainer's end is not told", "node", t.node, "error", err)
	}
}

// tellExit tells the cluster that the process is gone, or as good as gone, with what it held: once.
func (t *trainer) tellExit(how string, code int) {
	t.telling.Lock()
	defer t.telling.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ended), tellTimeout)
	defer cancel()
	if err := t.session.Exited(ctx, how, code); err != nil {
		slog.Warn("the trainer's end is not told", "node", t.node, "error", err)
	}
}

// refuse ends a trainer that has asked for a place, and is to take none.
func (t *trainer) refuse() {
	t.tellExit(errForgets.What, -1)
	t.end(errForgets)
	t.close()
}
