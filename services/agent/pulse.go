package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// A usual step is the median of so many.
const medianSteps = 20

// A heartbeat also goes out when a step is completed, so that whoever watches sees each; but no more often than this.
const progressEvery = 50 * time.Millisecond

// stepClock knows how long a step usually takes, and so how long a stall was.
type stepClock struct {
	durations []float64 // of the last steps, in seconds
	completed time.Time // the last step
	pending   uint64    // generation whose first step is awaited; zero for none
}

func (c *stepClock) switched(generation uint64) { c.pending = generation }

// tick notes a completed step, and returns the stall before it when it is the first of a generation.
func (c *stepClock) tick(now time.Time, seconds float64) (stall, usual float64, first bool) {
	usual = c.usual()
	if usual == 0 {
		usual = seconds
	}
	if !c.completed.IsZero() {
		stall = max(0, now.Sub(c.completed).Seconds()-usual)
	}
	first = c.pending != 0
	c.completed, c.pending = now, 0
	c.durations = append(c.durations, seconds)
	if len(c.durations) > medianSteps {
		c.durations = c.durations[1:]
	}
	return stall, usual, first
}

func (c *stepClock) usual() float64 {
	if len(c.durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(c.durations))
	return sorted[len(sorted)/2]
}

// Report tells that a step was completed, how long it took and its loss (zero where the node does not know it). It
// is called before Boundary.
func (s *Session) Report(step uint64, stepSeconds, loss float64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.view.done = step
	s.beat.Step, s.beat.StepSeconds, s.beat.Loss = step, stepSeconds, loss
	if time.Since(s.pulsed) >= progressEvery {
		defer func() { go s.sendPulse() }()
	}
	stall, usual, first := s.clock.tick(time.Now(), stepSeconds)
	if !first {
		return
	}
	generation := s.view.generation()
	s.say(s.speaker.First(time.Now(), s.view.digest+s.view.incarnation, events.PlanActivated, s.config.Node, &events.Activation{
		Node: s.config.Node, Generation: generation, Step: step,
		StallSeconds: stall, StallSteps: stall / max(usual, 1e-9), StepSeconds: usual,
	}))
}

// Profiled tells how fast the node computes, relative to what the job declares.
func (s *Session) Profiled(step uint64, speedFactor float64) {
	s.mutex.Lock()
	reason := fmt.Sprintf("%s-%d", s.view.incarnation, step)
	s.mutex.Unlock()
	s.say(s.speaker.First(time.Now(), reason, events.NodeProfiled, s.config.Node,
		&events.Profile{Node: s.config.Node, SpeedFactor: speedFactor, Step: step}))
}

// Suspect tells that a peer does not answer on the data plane, at once.
func (s *Session) Suspect(node string, refused bool, reason string) {
	s.mutex.Lock()
	s.suspicions[node] = events.Suspicion{Node: node, Refused: refused, Reason: reason}
	s.mutex.Unlock()
	s.sendPulse()
}

// pulse sends heartbeats until the session ends.
func (s *Session) pulse() {
	ticker := time.NewTicker(s.config.PulseEvery)
	defer ticker.Stop()
	for {
		s.sendPulse()
		select {
		case <-s.context.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Session) sendPulse() {
	s.mutex.Lock()
	s.beat.Number++
	s.pulsed = time.Now()
	s.beat.Node, s.beat.Incarnation, s.beat.Generation = s.config.Node, s.view.incarnation, s.view.generation()
	s.beat.Suspicions = s.beat.Suspicions[:0]
	for _, suspicion := range s.suspicions {
		s.beat.Suspicions = append(s.beat.Suspicions, suspicion)
	}
	clear(s.suspicions)
	data, err := json.Marshal(s.beat)
	s.mutex.Unlock()
	if err == nil {
		err = s.bus.Conn().Publish(events.PulseSubject(s.config.Cluster, s.config.Node), data)
	}
	if err != nil {
		slog.Warn("heartbeat not sent", "error", err)
	}
}

// answerProbes gives a sign of life, measures a link when asked, hears who cannot reach the store or follows layers, and
// takes relayed frames.
func (s *Session) answerProbes() error {
	_, err := s.bus.Conn().Subscribe(events.ProbeSubject(s.config.Cluster, s.config.Node), func(message *nats.Msg) {
		go s.answerProbe(message)
	})
	if err == nil {
		_, err = s.bus.Conn().Subscribe(events.ShardSubject(s.config.Cluster, s.config.Node), s.answerLift)
	}
	if err == nil && s.config.PreCopies {
		_, err = s.bus.Conn().Subscribe(events.PreCopySubject(s.config.Cluster, s.config.Node), func(message *nats.Msg) {
			go s.answerFollow(message)
		})
	}
	if err != nil || s.config.Relayed == nil {
		return err
	}
	_, err = s.bus.Conn().Subscribe(events.RelaySubject(s.config.Cluster, s.config.Node), func(message *nats.Msg) {
		s.config.Relayed(message.Data)
	})
	return err
}

func (s *Session) answerProbe(message *nats.Msg) {
	var probe events.Probe
	if err := json.Unmarshal(message.Data, &probe); err != nil {
		slog.Warn("probe not understood", "error", err)
		return
	}
	s.mutex.Lock()
	answer := events.ProbeAnswer{Node: s.config.Node, Incarnation: s.view.incarnation}
	s.mutex.Unlock()
	if probe.Target != "" {
		measured, err := s.measure(probe.Target, probe.Address, min(probe.Bytes, 8<<20))
		if err != nil {
			answer.Error = err.Error()
		} else {
			answer.Measured = &measured
		}
	}
	data, err := json.Marshal(answer)
	if err == nil {
		err = message.Respond(data)
	}
	if err != nil {
		slog.Warn("probe not answered", "error", err)
	}
}

// Relay sends a data-plane frame of at most 1 MiB to a node through the hub.
func (s *Session) Relay(node string, frame []byte) error {
	return s.bus.Conn().Publish(events.RelaySubject(s.config.Cluster, node), frame)
}
