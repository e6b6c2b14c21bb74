package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/channel"
	"github.com/reknit/reknit/services/agent/links"
	"github.com/reknit/reknit/services/agent/machine"
)

// A heartbeat also goes out when a step is completed, so that whoever watches sees each; but no more often than this.
const progressEvery = 50 * time.Millisecond

const mostProbeBytes = 8 << 20 // that a probe may ask to be sent over a link

// pulses are the heartbeats.
type pulses struct {
	next       events.Pulse
	last       time.Time
	suspicions map[string]*suspicion // told too seldom yet, by peer
	moved      time.Time             // the trainer completed a step, or began the first one of a plan; zero: neither
}

// tellings is in how many heartbeats a suspicion goes out: one may be lost. For longer it would be no news, but evidence
// against a peer that came back.
const tellings = 3

// suspicion is one that was told so many times.
type suspicion struct {
	events.Suspicion
	told int
}

// Report tells that a step was completed, how long it took and its loss (zero where the node does not know it). It
// is called before Boundary.
func (s *Session) Report(step uint64, stepSeconds, loss float64) {
	notFinite := math.IsNaN(loss) || math.IsInf(loss, 0)
	if notFinite {
		loss = 0 // JSON has no such number
	}
	s.tell(func() []machine.Action {
		s.loop.done = step
		s.pulses.next.Step, s.pulses.next.StepSeconds = step, stepSeconds
		s.pulses.next.Loss, s.pulses.moved = loss, time.Now()
		if s.machine.Loss(step, !notFinite) {
			slog.Warn("the loss is not finite: no snapshot is taken until it is again, and the newest of before stays",
				"node", s.config.Node, "step", step)
		}
		if time.Since(s.pulses.last) >= progressEvery {
			go s.sendPulse()
		}
		return s.machine.Completed(time.Now(), step, stepSeconds)
	})
}

// Computed tells how long the trainer passed micro-batches forward and backward in a step, without what it waited for others. It is
// called before that step's Report: predictions tell by it what a step takes beside.
func (s *Session) Computed(seconds float64) {
	s.tell(func() []machine.Action {
		s.machine.Computed(seconds)
		return nil
	})
}

// Scripted tells why a script that knows nothing of its agent does not get on; nil: nothing tells against it.
func (s *Session) Scripted(script *events.Script) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.pulses.next.Script = script
}

// Suspect tells that a peer does not answer on the data plane, at once.
func (s *Session) Suspect(node string, refused bool, reason string) {
	s.mutex.Lock()
	s.pulses.suspicions[node] = &suspicion{Suspicion: events.Suspicion{Node: node, Refused: refused, Reason: events.Brief(reason)}}
	s.mutex.Unlock()
	s.sendPulse()
}

// pulse sends heartbeats until the session ends.
func (s *Session) pulse() {
	ticker := time.NewTicker(s.config.PulseEvery)
	defer ticker.Stop()
	for {
		s.sendPulse()
		if s.bus.Conn().IsConnected() {
			s.tell(func() []machine.Action { return s.machine.DigestedAgain(time.Now()) })
		}
		select {
		case <-s.context.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Session) sendPulse() {
	s.mutex.Lock()
	known, pulse := s.machine.Snapshot(), &s.pulses.next
	if known.Generation > 0 { // a plan sets the step, too: that of a joiner, and of who is rolled back
		pulse.Step = known.Step
	}
	pulse.PaceSeconds = known.Pace
	pulse.LossNotFinite, pulse.LossNotFiniteSince = known.Diverged > 0, known.Diverged
	if pulse.StillSeconds = 0; !s.pulses.moved.IsZero() {
		pulse.StillSeconds = time.Since(s.pulses.moved).Seconds()
	}
	if worker, able := s.loop.state.(Worker); able {
		pulse.Phase = worker.Phase()
		if pulse.Between = pulse.Phase == events.PhaseBetween; pulse.Between {
			pulse.Phase = ""
		}
	}
	s.pulses.last = time.Now()
	pulse.Number++
	pulse.Node, pulse.Incarnation, pulse.Generation = s.config.Node, known.Incarnation, known.Generation
	pulse.Suspicions = s.pulses.suspect(pulse.Suspicions[:0])
	data, err := json.Marshal(pulse)
	s.mutex.Unlock()
	if err == nil {
		err = s.bus.Conn().Publish(events.PulseSubject(s.config.Cluster, s.config.Node), data)
	}
	if err != nil && !errors.Is(err, nats.ErrReconnectBufExceeded) { // that there is no connection was said when it ended
		slog.Warn("heartbeat not sent", "error", err)
	}
}

// suspect adds the suspicions that the next heartbeat tells, first those that were told least.
func (p *pulses) suspect(told []events.Suspicion) []events.Suspicion {
	for _, peer := range slices.SortedFunc(maps.Keys(p.suspicions), func(a, b string) int {
		return cmp.Compare(p.suspicions[a].told, p.suspicions[b].told)
	}) {
		if len(told) == events.MostSuspicions {
			break // the next heartbeat tells the rest
		}
		known := p.suspicions[peer]
		told = append(told, known.Suspicion)
		if known.told++; known.told == tellings {
			delete(p.suspicions, peer)
		}
	}
	return told
}

// answerRequests gives a sign of life, measures a link when asked, hears who cannot reach the store or pre-copies
// units, keeps parts of snapshots, and takes relayed frames.
func (s *Session) answerRequests() error {
	cluster, node, speaker := s.config.Cluster, s.config.Node, events.AnySpeaker(s.bus.Secured())
	answers := map[string]nats.MsgHandler{
		events.ProbeSubject(cluster, node):          func(message *nats.Msg) { go s.answerProbe(message) },
		events.ShardSubject(cluster, node, speaker): s.answerShard,
	}
	if s.config.Snapshots.MemoryEvery > 0 {
		answers[events.KeepSubject(cluster, node, speaker)] = func(message *nats.Msg) { go s.answerKeep(message) }
	}
	if s.config.PreCopies {
		answers[events.PreCopySubject(cluster, node, speaker)] = func(message *nats.Msg) { go s.answerPreCopy(message) }
	}
	if s.config.Relayed != nil {
		answers[events.RelaySubject(cluster, node, speaker)] = s.hearRelayed
	}
	for subject, answer := range answers {
		if _, err := s.bus.Conn().Subscribe(subject, answer); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) answerProbe(message *nats.Msg) {
	var probe events.Probe
	if err := json.Unmarshal(message.Data, &probe); err != nil {
		slog.Warn("probe not understood", "error", err)
		return
	}
	s.mutex.Lock()
	answer := events.ProbeAnswer{Node: s.config.Node, Incarnation: s.machine.Snapshot().Incarnation}
	s.mutex.Unlock()
	if probe.Target != "" {
		measured, err := s.measure(probe.Target, probe.Address, min(probe.Bytes, mostProbeBytes))
		if err != nil {
			answer.Error, answer.Finding = err.Error(), finding(err)
		} else {
			answer.Measured = &measured
		}
	}
	respond(message, answer, nil)
}

// finding is what became of the connection over which a link was to be measured.
func finding(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return events.FoundRefused
	case errors.Is(err, links.ErrStalled):
		return events.FoundStalled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return events.FoundUnreachable
	}
	return ""
}

// respond answers a request, sealed where seals is not nil.
func respond(message *nats.Msg, answer any, seals func([]byte) []byte) {
	data, err := json.Marshal(answer)
	if err == nil {
		if seals != nil {
			data = seals(data)
		}
		err = message.Respond(data)
	}
	if err != nil {
		slog.Warn("request not answered", "subject", message.Subject, "error", err)
	}
}

// MostRelayBytes bounds a frame that is relayed, sealed where it is.
const MostRelayBytes = 1 << 20

// Relay sends a data-plane frame of at most MostRelayBytes to a node through the hub: who says more at once loses the connection.
func (s *Session) Relay(node string, frame []byte) error {
	sealed, err := s.channels.Seal(node, channel.Frame, frame)
	if err != nil {
		return err
	}
	if len(sealed) > MostRelayBytes {
		return fmt.Errorf("relay to %s: frame: expected at most %d bytes, got %d", node, MostRelayBytes, len(sealed))
	}
	return s.bus.Conn().Publish(s.relaySubject(node), sealed)
}
