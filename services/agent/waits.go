package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
)

// remindEvery is after how long a trainer without a plan says so, and says so again. A cluster that is held is told
// again after three times as long, and each later time after six times as long. A test shortens it.
var remindEvery = 10 * time.Second

const (
	lookTime = 2 * time.Second // for the log to tell how those ended who are waited for
	mostLook = 8               // of whom it is asked
)

// waiting is why the cluster is held, and when that was told. Without a reason it is not held.
type waiting struct {
	machine.Waits
	finished string // who of those that are waited for had completed the job; empty: nobody is known to
	told     time.Time
	times    int
}

// due reports whether it is time to tell it again. It is asked every so often, not to the instant.
func (w waiting) due() bool {
	return w.times > 0 && time.Since(w.told) >= remindEvery*time.Duration(min(3*w.times, 6))-remindEvery/2
}

const beginAnew = "to begin anew at the first step: reknit cluster reset"

// trainLonger says how a job that is complete is trained longer, which hangs on where its state is.
func (s *Session) trainLonger() string {
	switch {
	case s.config.Job.Unchanged():
		return "to run the scripts again: reknit cluster reset, and start them: they begin with their own checkpoints"
	case slices.ContainsFunc(s.snapshots.Tiers(), machine.Tier.Outlives):
		return "to train it longer: reknit cluster reset --from-snapshot, and start all scripts again with more steps"
	}
	return "to train it longer: reknit cluster reset, and start all scripts again with more steps, in each of which the model that was " +
		"saved is loaded: no snapshots are taken here"
}

// remedy is what somebody can do about it; longer says how a job that is complete is trained longer.
func (w waiting) remedy(longer string) string {
	switch {
	case len(w.Awaits) == 0:
		return "" // the reason says what is missing
	case w.finished != "":
		return "this cluster's job was finished: " + w.finished + " had completed its last step; " + longer + "; " + beginAnew
	}
	return "start the nodes that are awaited again, by the names they had (REKNIT_AGENT_NODE, of reknit trainer REKNIT_TRAINER_NODE), " +
		"with the state or the snapshots they have; where there are none any more, " + beginAnew
}

// remind tells who reads the log why a trainer stands still.
func (s *Session) remind() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case s.waiting.due():
		s.sayWaits()
	case s.waiting.Reason == "" && s.machine.Snapshot().Generation == 0:
		go s.sayThatItHasNoPlan(s.bus.Conn().IsConnected(), s.machine.Snapshot().Known)
	}
}

// sayThatItHasNoPlan tells it with what the negotiator says for itself: one that works is at something that takes longer, an agreement
// or a step that others are in. Nodes of a secured installation may not ask, and then nobody is blamed. The generation is that of the plan
// by which others train; zero: none is known.
func (s *Session) sayThatItHasNoPlan(connected bool, generation uint64) {
	about := []any{"node", s.config.Node, "cluster", s.config.Cluster, "connected", connected}
	works, known := s.negotiates()
	held, isHeld := events.Event{}, false
	if works || connected && !known {
		held, isHeld = s.missedHold()
	}
	switch {
	case isHeld:
		s.hear(held)
	case works && generation > 0:
		slog.Info("others train, and this node has no place yet: it waits for the plan that takes it in", append(about, "generation", generation,
			"do", "reknit nodes tells why it has none, and reknit explain for whom the next plan waits")...)
	case works:
		slog.Info("no plan yet, and the services work: they wait for others", append(about, "do",
			"reknit explain tells for whom, and reknit status what those are at")...)
	case known:
		slog.Warn("no plan yet, and no services serve this cluster", append(about,
			"do", fmt.Sprintf("set REKNIT_CLUSTER to the one that they serve (reknit status tells which there are), or start services: "+
				"reknit up --cluster %s --dir %[1]s-data --port 0 says how trainers join it", s.config.Cluster))...)
	default:
		slog.Info("no plan yet, and nobody says why", append(about, "do", "ask with the kit of a user: reknit status")...)
	}
}

// missedHold returns why the cluster holds, where that was told before this node listened and nothing came of it since.
func (s *Session) missedHold() (held events.Event, found bool) {
	ctx, cancel := context.WithTimeout(s.context, lookTime)
	defer cancel()
	held, found, err := s.bus.LastEvent(ctx, events.EventStream, events.EventSubject(s.config.Cluster, events.ClusterHeld, "*"))
	return held, err == nil && found && !s.isFollowed(ctx, held)
}

// negotiates asks whether a negotiator acts for the cluster; known is false where it cannot be told.
func (s *Session) negotiates() (works, known bool) {
	if s.bus.Secured() || !s.bus.Conn().IsConnected() {
		return false, false
	}
	ctx, cancel := context.WithTimeout(s.context, lookTime)
	defer cancel()
	_, err := s.bus.Conn().RequestWithContext(ctx, events.LeaseSubject(s.config.Cluster, "negotiator", ""), nil)
	return err == nil, err == nil || errors.Is(err, nats.ErrNoResponders)
}

// waits tells who reads the log why training waits, and that it goes on. Called with the mutex held.
func (s *Session) waits(waits machine.Waits) {
	s.waiting = waiting{Waits: waits}
	switch {
	case waits.Reason == "":
		slog.Info("training goes on", "node", s.config.Node, "waitedSince", waits.Since)
	case len(waits.Awaits) == 0:
		s.sayWaits()
	default:
		go s.sayWaitsFor(waits)
	}
	if s.config.Waits != nil {
		s.config.Waits(waits.Reason, waits.Awaits, waits.Since)
	}
}

// late tells who reads the log, and the trainer, that the node cannot leave in time.
func (s *Session) late(late machine.Late) {
	slog.Warn("the leave takes longer than its deadline", "node", s.config.Node, "reason", late.Reason,
		"seconds", late.Seconds, "alone", late.Alone)
	if s.config.Late != nil {
		s.config.Late(late.Reason, late.Seconds, late.Alone)
	}
}

// sayAwaited tells who reads the log that the others wait for this trainer in their step, which status names, too.
func (s *Session) sayAwaited(awaited machine.Awaited) {
	slog.Warn("the others wait for this trainer: it hangs, or does something else in its step", "node", s.config.Node,
		"step", awaited.Step, "reason", awaited.Reason,
		"do", "end the script if it hangs, and its agent starts it again; what takes long belongs behind step.commit(), in all scripts at "+
			"one step")
}

// sayWaitsFor tells it with what the log knows of those who are waited for, unless it is no news any more.
func (s *Session) sayWaitsFor(waits machine.Waits) {
	finished := s.finished(waits.Awaits[:min(len(waits.Awaits), mostLook)])
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.waiting.Reason == waits.Reason && s.waiting.times == 0 && s.ended == nil {
		s.waiting.finished = finished
		s.sayWaits()
	}
}

// sayWaits tells why training waits, and what to do. Called with the mutex held.
func (s *Session) sayWaits() {
	w := &s.waiting
	w.told, w.times = time.Now(), w.times+1
	about := []any{"node", s.config.Node, "reason", w.Reason, "awaits", w.Awaits, "since", w.Since}
	if remedy := w.remedy(s.trainLonger()); remedy != "" {
		about = append(about, "do", remedy)
	}
	slog.Warn("training waits", about...)
}

// finished returns the first of these nodes that had completed the job when its process ended; empty where the log has
// none.
func (s *Session) finished(nodes []string) string {
	ctx, cancel := context.WithTimeout(s.context, lookTime)
	defer cancel()
	for _, node := range nodes {
		if s.completed(ctx, node) {
			return node
		}
	}
	return ""
}

// completed reports whether a node ended well, as its agent expected. A node that asked to leave is expected to end, too, and had not
// completed anything by that.
func (s *Session) completed(ctx context.Context, node string) bool {
	last := func(kind events.Kind) (events.Event, bool) {
		event, found, err := s.bus.LastEvent(ctx, events.EventStream, events.EventSubject(s.config.Cluster, kind, node))
		return event, found && err == nil
	}
	event, ended := last(events.NodeExited)
	if _, left := last(events.LeaveRequested); left || !ended {
		return false
	}
	exit, err := events.Open[events.Exit](event)
	return err == nil && exit.Expected && exit.ExitCode != nil && *exit.ExitCode == 0
}
