package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/detect"
)

// Pulse takes a heartbeat that waited for so long to be taken: it is judged by when it came.
func (m *Machine) Pulse(pulse events.Pulse, waited time.Duration, at time.Time) []events.Event {
	now := m.clock.seconds(at) - waited.Seconds()
	signal := detect.Signal{Node: pulse.Node, Incarnation: pulse.Incarnation, Number: pulse.Number}
	counted, cleared := m.detector.Signal(now, signal) // of one that is lost, too: it learns from who returns
	known := m.state.Nodes[pulse.Node]
	if known == nil || known.Incarnation != pulse.Incarnation {
		return nil
	}
	if counted {
		known.Number, known.Suspected, known.gone = pulse.Number, false, nil
		adopts := known.generation != pulse.Generation
		known.generation, known.step = pulse.Generation, pulse.Step
		m.hangs.Pulse(now, pulse.Node, detect.Progress{
			Generation: pulse.Generation, Step: pulse.Step, StepSeconds: pulse.StepSeconds, Phase: phaseOf(pulse),
		})
		if adopts {
			m.takenOver()
		}
	}
	if pulse.Left && m.state.Leavers[pulse.Node] > 0 {
		m.forget(pulse.Node)
		return nil
	}
	for _, suspicion := range pulse.Suspicions {
		m.suspicion(now, pulse.Node, suspicion)
	}
	var said []events.Event
	if cleared {
		said = append(said, m.sayNode(at, events.NodeCleared, known, detect.Verdict{Node: pulse.Node}, "heartbeats again"))
	}
	if script := pulse.Script; counted && script != nil && script.RestsSeconds > 0 && known.Active && pulse.Generation > 0 {
		if known.rested == 0 || now-known.rested > restAgain {
			said = append(said, m.sayRests(at, known, pulse))
		}
		known.rested = now
	}
	return said
}

// restAgain is after how many seconds in which no heartbeat told of one a script's rest is another: an agent that tells of one now, and of
// none then, is not to fill the log.
const restAgain = 60

// phaseOf returns what the trainer does, by its heartbeat.
func phaseOf(pulse events.Pulse) detect.Phase {
	switch {
	case pulse.Phase == events.PhaseComputing:
		return detect.Computing
	case pulse.Phase == events.PhaseWaiting:
		return detect.Waiting
	case pulse.Between:
		return detect.Between
	}
	return detect.Unknown
}

// suspicion takes a node's report about a peer. Whether the peer or the link between them is at fault is seen by
// asking the peer at once, on the path over the hub.
func (m *Machine) suspicion(now float64, reporter string, suspicion events.Suspicion) {
	if m.state.Nodes[suspicion.Node] == nil || suspicion.Node == reporter {
		return
	}
	pair := events.PairOf(reporter, suspicion.Node)
	if m.reports[pair] == nil {
		m.reports[pair] = detect.Reports{}
	}
	m.reports[pair][reporter] = now
	if suspicion.Refused {
		m.detector.Reset(now, suspicion.Node)
	}
	m.ask(now, Ask{Node: suspicion.Node})
}

// Tick tells the machine the time.
func (m *Machine) Tick(at time.Time) []events.Event {
	now := m.clock.seconds(at)
	m.state.Rate.Seconds += float64(m.detector.Watched()) * (now - m.ticked)
	m.state.Returns.Pass(now - m.ticked)
	m.ticked = now
	m.takenOver() // where the last node without the plan is gone, no heartbeat tells it
	var said []events.Event
	for _, verdict := range m.detector.Tick(now) {
		switch {
		case verdict.Node == "":
			said = append(said, m.saySite(at, verdict))
			continue
		case verdict.State == detect.Lost:
			said = append(said, m.lose(at, verdict)...)
			continue
		}
		known := m.state.Nodes[verdict.Node]
		known.Suspected = true
		said = append(said, m.sayNode(at, events.NodeSuspected, known, verdict, "no heartbeat"))
	}
	if hang, hangs := m.hangs.Find(); hangs {
		said = append(said, m.fail(at, detect.Verdict{Node: hang.Node, WaitedSeconds: hang.WaitedSeconds}, fmt.Sprintf(
			"its trainer hangs: it computes, and %s has waited for it for %.1f s, where %.1f s would be long",
			hang.By, hang.WaitedSeconds, hang.LimitSeconds))...)
	}
	for _, delay := range m.hangs.Delays() {
		said = append(said, m.sayDelayed(at, delay))
	}
	m.askSilent(now)
	m.confirm(now)
	m.askNextLink(now)
	return said
}

// lose says that a node is lost, and why.
func (m *Machine) lose(at time.Time, verdict detect.Verdict) []events.Event {
	known := m.state.Nodes[verdict.Node]
	reason := "no heartbeat"
	switch {
	case !known.Active && !verdict.Evidence && verdict.SilentSeconds < askAgainSeconds:
		reason = "nobody answers at the hub"
	case verdict.Stalled:
		reason = "no heartbeat, and its host accepts connections on which nobody answers" + waitedFor(verdict)
	case verdict.Site.Name != "":
		reason = "no heartbeat, like most of its site " + verdict.Site.Name
	case verdict.Evidence:
		reporters := cmp.Or(m.reporters(verdict.Node, m.clock.seconds(at)), "peers") // whose names are not remembered
		reason = reporters + " reported a reset connection and nobody answers at the hub"
	}
	return m.fail(at, verdict, reason)
}

// waitedFor says why a stalled node was waited for longer than others; empty where it was not.
func waitedFor(verdict detect.Verdict) string {
	if verdict.StallSeconds == 0 {
		return ""
	}
	return fmt.Sprintf("; it was waited for longer than a node that is gone, for a stall of %.1f s had ended by itself", verdict.StallSeconds)
}

// fail says that a node is lost, and counts it as a failure.
func (m *Machine) fail(at time.Time, verdict detect.Verdict, reason string) []events.Event {
	m.state.Rate.Failures++
	said := m.sayLost(at, verdict, reason)
	m.state.Returns.Lost(verdict.Node)
	return said
}

// sayLost says that a node is lost, once an incarnation, and forgets it.
func (m *Machine) sayLost(at time.Time, verdict detect.Verdict, reason string) []events.Event {
	known := m.state.Nodes[verdict.Node]
	lost := m.speaker.First(at, known.Incarnation, events.NodeLost, verdict.Node, m.nodeState(known, verdict, reason))
	m.forget(verdict.Node)
	return []events.Event{lost}
}

// reporters names who reported a node lately.
func (m *Machine) reporters(target string, now float64) string {
	names := ""
	for _, reporter := range slices.Sorted(maps.Keys(m.state.Nodes)) {
		at, ok := m.reports[events.PairOf(reporter, target)][reporter]
		if !ok || now-at > reportSeconds || len(names) >= 512 {
			continue
		}
		if names != "" {
			names += ", "
		}
		names += reporter
	}
	return names
}

// sayNode says a fact that a silence or its end brought about: the last heartbeat takes the cause's place in its id.
func (m *Machine) sayNode(
	at time.Time, kind events.Kind, known *node, verdict detect.Verdict, reason string,
) events.Event {
	return m.speaker.First(at, beat(known), kind, verdict.Node, m.nodeState(known, verdict, reason))
}

// phaseNames and doings are what a trainer does while others wait for it, in an event and in words.
var (
	phaseNames = map[detect.Phase]string{detect.Computing: events.PhaseComputing, detect.Between: events.PhaseBetween}
	doings     = map[detect.Phase]string{detect.Computing: "; it computes", detect.Between: "; it is between steps"}
)

// sayDelayed says that others wait long for a node.
func (m *Machine) sayDelayed(at time.Time, delay detect.Delay) events.Event {
	known := m.state.Nodes[delay.Node]
	return m.speaker.First(at, beat(known), events.StepDelayed, delay.Node, &events.StepDelay{
		Node: delay.Node, Incarnation: known.Incarnation, Generation: delay.Generation, Step: delay.Step, By: delay.By,
		Phase: phaseNames[delay.Phase], WaitedSeconds: delay.WaitedSeconds, UsualSeconds: delay.UsualSeconds,
		Reason: fmt.Sprintf("%s has waited for it for %.1f s, %.3g s is usual%s",
			delay.By, delay.WaitedSeconds, delay.UsualSeconds, doings[delay.Phase]),
	})
}

// sayRests says that a script that knows nothing of its agent rests, as that sees.
func (m *Machine) sayRests(at time.Time, known *node, pulse events.Pulse) events.Event {
	script := pulse.Script
	reason := fmt.Sprintf("its script has neither used a processor nor written for %.0f s; the longest such time before was %.0f s",
		script.RestsSeconds, script.UsualSeconds)
	if script.Stopped {
		reason = fmt.Sprintf("its script is stopped, by SIGSTOP or a debugger, for %.0f s", script.RestsSeconds)
	}
	return m.speaker.First(at, beat(known), events.StepDelayed, pulse.Node, &events.StepDelay{
		Node: pulse.Node, Incarnation: known.Incarnation, Generation: pulse.Generation, Step: pulse.Step, By: pulse.Node,
		WaitedSeconds: script.RestsSeconds, UsualSeconds: script.UsualSeconds,
		Reason: reason,
	})
}

// saySite says that most of a site is silent, or that it is not any more: a fact in the life of this machine, which no
// event and no heartbeat caused.
func (m *Machine) saySite(at time.Time, verdict detect.Verdict) events.Event {
	kind, site := events.SiteCleared, verdict.Site
	if verdict.State == detect.Suspected {
		kind = events.SiteSuspected
	}
	cause := fmt.Sprint(site.Name, " ", at.UnixNano())
	return m.speaker.First(at, cause, kind, site.Name, &events.SiteState{Site: site.Name, Silent: site.Silent, Nodes: site.Nodes})
}

// beat names a node's last heartbeat.
func beat(known *node) string { return fmt.Sprintf("%s.%d", known.Incarnation, known.Number) }

func (m *Machine) nodeState(known *node, verdict detect.Verdict, reason string) *events.NodeState {
	return &events.NodeState{
		Node: verdict.Node, Incarnation: known.Incarnation, Reason: reason,
		Proven: known.ended, Step: known.step, SilentSeconds: verdict.SilentSeconds, WaitedSeconds: verdict.WaitedSeconds,
		FailuresPerNodeSecond: m.state.Rate.PerNodeSecond(), SecondsUntilReturn: m.state.Returns.MeanSeconds(),
	}
}
