package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/agent/outlive"
	"github.com/reknit/reknit/services/agent/snapshots"
	"github.com/reknit/reknit/shared/bus"
)

// holder stands for a node whose script has ended. It keeps what that left for the next script. If none comes soon, it frees that once a
// plan does without it. Otherwise it takes part without a script, and gives what others wait for.
type holder struct {
	config  Config
	left    *kept
	last    <-chan struct{} // closed when no script comes any more
	stopped context.CancelFunc
	over    chan struct{} // closed when it has ended
	freed   bool          // nothing is kept any more; to be read once it is over

	session *agent.Session // nil where it takes no part
}

// scriptTime is how long the next script may take to join before others are given what the last one left: it is started again
// within 30 s, and PyTorch loads for some seconds. A negotiation that its join interrupts would cost more.
var scriptTime = 15 * time.Second

const longestTurn = 5 * time.Minute // between attempts to give: a plan may put the node where a script is needed, which costs the others a step

// keep keeps what a script left; nil for nothing. Called with the mutex held.
func (s *Server) keep(left *kept) {
	if left == nil {
		return
	}
	if s.context.Err() != nil {
		left.files.remove()
		return
	}
	ctx, stop := context.WithCancel(s.context)
	node := left.joining.Node
	h := &holder{config: s.config, left: left, last: s.last, stopped: stop, over: make(chan struct{})}
	s.kept[node] = h
	go func() {
		defer close(h.over)
		h.run(ctx)
		if !h.freed {
			return
		}
		h.left.files.remove()
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if s.kept[node] == h {
			delete(s.kept, node)
		}
	}()
}

// stop ends the holder, and returns what it still keeps; nil for nothing.
func (h *holder) stop() *kept {
	if h == nil {
		return nil
	}
	h.stopped()
	<-h.over
	if h.freed {
		return nil
	}
	return h.left
}

// Released says that no script is started any more. The channel that it returns is closed when nothing of what scripts left is needed.
// Nobody needs what is left of a node that has trained alone from its beginning on.
func (s *Server) Released() <-chan struct{} {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	select {
	case <-s.last:
	default:
		close(s.last)
	}
	holders := slices.Collect(maps.Values(s.kept))
	released := make(chan struct{})
	go func() {
		defer close(released)
		for _, h := range holders {
			if h.left.shared {
				<-h.over
			}
		}
	}()
	return released
}

// Keeps reports whether scripts left something that is kept, and whether nobody but this node ever had all of it.
func (s *Server) Keeps() (something, alone bool) {
	kept := s.holders()
	return len(kept) > 0, len(kept) > 0 && !slices.ContainsFunc(kept, func(h *holder) bool { return h.left.shared })
}

func (s *Server) holders() []*holder {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Collect(maps.Values(s.kept))
}

// run keeps, and gives where that is needed, until nobody needs what is kept or ctx ends.
func (h *holder) run(ctx context.Context) {
	last := h.last
	for pause := scriptTime; ; pause = min(2*pause, longestTurn) {
		select {
		case <-ctx.Done():
			return
		case <-last:
			last, pause = nil, scriptTime
		case <-time.After(pause):
		}
		isNeeded, err := h.isNeeded(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			slog.Warn("whether others need what a script left is not known yet", "node", h.left.joining.Node, "error", err)
		case !isNeeded || h.give(ctx):
			slog.Info("what a script left is not needed any more", "node", h.left.joining.Node, "steps", h.left.steps())
			h.freed = true
			return
		}
	}
}

// isNeeded reports whether others may need what is kept, by the newest plan that is committed and the last word that the cluster is
// held. Both are the negotiator's, and have its time.
func (h *holder) isNeeded(ctx context.Context) (bool, error) {
	b, err := bus.Connect(ctx, bus.Config{URL: h.config.URL, Name: h.left.joining.Node, Cluster: h.config.Cluster, Kit: h.config.Kit})
	if err != nil {
		return false, err
	}
	defer b.Close()
	event, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(h.config.Cluster, "*"))
	if err != nil || !found {
		return true, err
	}
	plan, err := events.Open[events.Plan](event)
	if err != nil {
		return true, err
	}
	hold, isHeld, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(h.config.Cluster, events.ClusterHeld, h.config.Cluster))
	isHeld = isHeld && hold.Time.After(event.Time)
	return outlive.Needed(h.left.generation, plan.Generation, len(plan.UnitsOf(h.left.joining.Node)) > 0, isHeld), err
}

// tellEnd tells the cluster that the agent ends, and keeps no more what it said to keep.
func (h *holder) tellEnd() {
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	node, process := h.left.joining.Node, h.left.process
	if h.session != nil { // it took part itself since
		process = h.session.Incarnation()
	}
	b, err := bus.Connect(ctx, bus.Config{URL: h.config.URL, Name: node, Cluster: h.config.Cluster, Kit: h.config.Kit})
	if err == nil {
		defer b.Close()
		speaker := events.Speaker{Source: "/node/" + node, Cluster: h.config.Cluster}
		_, err = b.Publish(ctx, speaker.First(time.Now(), "ends-"+process, events.NodeExited, node, &events.Exit{
			Node: node, Incarnation: process, Generation: h.left.generation,
			Reason: "its agent ended, and keeps no more what its trainer left",
		}))
	}
	if err != nil {
		slog.Warn("that the agent ends is not told", "node", node, "error", err)
	}
}

// trainable is what the node may use for training: nothing, so that a plan gives it no place.
const trainable = 1 // byte

// give takes part without a script, until ctx ends or nobody needs what is kept, which it reports.
func (h *holder) give(ctx context.Context) (freed bool) {
	slog.Warn("no script has come back for the node; its agent gives to others what the last one left", "node", h.left.joining.Node,
		"steps", h.left.steps())
	t, err := newTrainer(ctx, h.config, h.left.joining.Node, h.left.job)
	if err == nil {
		defer t.closeSession()
		defer t.end(errClose)
		config, joining := h.config, h.left.joining
		config.Stuck, config.Stays, config.Snapshots, joining.MemoryBytes = nil, nil, snapshots.Settings{}, trainable
		err = t.join(ctx, config, joining, h.left.job, h.left.generation, h.left.plan)
	}
	if err != nil {
		slog.Warn("what a script left cannot be given yet", "node", h.left.joining.Node, "error", err)
		return false
	}
	h.session = t.session
	_, err = t.session.Boundary(ctx, h.step(), h)
	switch {
	case errors.Is(err, agent.ErrLeft), errors.Is(err, agent.ErrComplete), errors.Is(err, agent.ErrOtherJob), errors.Is(err, agent.ErrRevoked):
		return true
	case err == nil: // a step, which nobody makes
		t.keeps = true
		t.exited(exit{how: "no script has come back", code: -1})
	}
	return len(h.left.units) == 0
}

// step returns the newest of the steps at which units stand.
func (h *holder) step() (newest uint64) {
	for _, step := range h.left.steps() {
		newest = max(newest, step)
	}
	return newest
}

// The holder is an agent.State: whole units that nobody trains.

// Holdings returns what is kept.
func (h *holder) Holdings() []events.Holding {
	return events.HoldingsOf(len(h.left.files.units), func(unit int) []uint64 {
		if one, is := h.left.units[unit]; is {
			return []uint64{one.step}
		}
		return nil
	})
}

// Export returns a unit's memory.
func (h *holder) Export(unit int, step uint64) ([]byte, error) {
	one, is := h.left.units[unit]
	if !is || one.step != step {
		return nil, fmt.Errorf("export of unit %d at step %d: expected one of %v", unit, step, h.Holdings())
	}
	return one.memory, nil
}

// Import refuses: who has no script trains nothing.
func (h *holder) Import(unit int, step uint64, _ []byte) error {
	return fmt.Errorf("import of unit %d at step %d: expected none, for the node has no script", unit, step)
}

// Adopt leaves all as it is. It asks to leave if a plan has it hold nothing: others hold what is kept.
func (h *holder) Adopt(units []events.Range, step uint64) error {
	for unit := range events.Each(units) {
		if one, is := h.left.units[unit]; !is || one.step != step {
			return fmt.Errorf("adoption of unit %d at step %d: %w", unit, step, errNoVersion)
		}
	}
	if len(units) == 0 {
		go h.session.Leave("no script has come back, and others hold what the last one left", 0)
	}
	return nil
}

// Forget drops all: it is not what the other holders have.
func (h *holder) Forget() { clear(h.left.units) }
