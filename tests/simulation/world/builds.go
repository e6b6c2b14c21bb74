package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
	monitor "github.com/reknit/reknit/services/monitor/machine"
	negotiator "github.com/reknit/reknit/services/negotiator/machine"
	planner "github.com/reknit/reknit/services/planner/machine"
	restorer "github.com/reknit/reknit/services/restorer/machine"
	shared "github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/tests/simulation/builds"
	"github.com/reknit/reknit/tests/simulation/builds/pipe"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// monitoring is a monitor's machine, of whatever build.
type monitoring interface {
	Pulse(pulse events.Pulse, waited time.Duration, at time.Time) []events.Event
	Asks() []monitor.Ask
	Probed(ask monitor.Ask, answer *events.ProbeAnswer, gone bool, at time.Time) []events.Event
}

// agentMachine is an agent's machine, of whatever build.
type agentMachine interface {
	Boundary(done uint64) []agent.Action
	Broken(now time.Time, reason string) []agent.Action
	Completed(now time.Time, step uint64, seconds float64) []agent.Action
	Digested(now time.Time, step uint64, final bool, units []events.UnitDigest) events.Event
	DigestedAgain(now time.Time) []agent.Action
	Done(result agent.Result) []agent.Action
	Exited(now time.Time, reason string, exitCode int) []agent.Action
	Fate(tier string, id retention.ID) agent.Fate
	Failed(now time.Time, reason string, exitCode int, inStep, keeps bool) []agent.Action
	Forgotten(reason string) []agent.Action
	Frozen(holdings []events.Holding) []agent.Action
	Handle(event events.Event) ([]agent.Action, error)
	Hears() []events.Kind
	Hung(now time.Time) []agent.Action
	Ignores(event events.Event) bool
	Join(now time.Time, incarnation string, back bool) []agent.Action
	Late() []agent.Action
	Leave(now time.Time, reason string, deadline time.Duration) []agent.Action
	Replaced() []agent.Action
	Resumes(now time.Time, tier string, id retention.ID, units []events.Range) events.Event
	Snapshot() agent.Snapshot
	Unwritten(now time.Time, tier string, id retention.ID, units []events.Range, finding, reason string) events.Event
	Withdraws(now time.Time, tier string, id retention.ID, units []events.Range) events.Event
	Written(now time.Time, tier string, id retention.ID, units []events.Range) events.Event
}

// fresh returns a new machine of the build whose turn it is.
func (s *service) fresh() shared.Machine {
	if s.earlier && s.program != "" {
		m := s.earlierBuild().Service(s.name, s.settings)
		if s.name == "negotiator" {
			m.Began(s.hub.made)
		}
		return m
	}
	switch settings := s.settings.(type) {
	case monitor.Settings:
		return monitor.New(settings)
	case pipe.Planner:
		return planner.New(planner.Settings{
			Cluster: settings.Cluster, MinReplicas: settings.MinReplicas, SwitchSeconds: settings.SwitchSeconds,
		})
	case negotiator.Settings:
		m := negotiator.New(settings)
		m.Began(s.hub.made)
		return m
	}
	return restorer.New(cluster, restorer.Settings{})
}

func (w *World) agentOf(n *node, settings agent.Settings) agentMachine {
	if n.earlier && w.program != "" {
		return w.earlierBuild().Agent(settings)
	}
	return agent.New(settings)
}

// earlierBuild starts the earlier build where nobody was of it yet.
func (w *World) earlierBuild() *builds.Build {
	if w.build != nil {
		return w.build
	}
	build, err := builds.Start(w.program)
	if err != nil {
		panic(fmt.Errorf("the earlier build: %w", err))
	}
	w.build = build
	return build
}

func (w *World) endBuild() {
	if w.build == nil {
		return
	}
	if err := w.build.Close(); err != nil {
		w.violation("the earlier build: %v", err)
	}
}

// exchangesAgain is how long an operator waits for a service that is not at work until it is exchanged.
const exchangesAgain = time.Second

// exchange has the instance that runs end, and one of another build take its place, which stands by until then. A service that is not at
// work is exchanged later.
func (s *service) exchange(earlier bool) {
	had := s.last()
	if had == nil || had.paused || !had.life.CaughtUp() || s.hub.State() != stream.Up {
		s.after(exchangesAgain, func() { s.exchange(earlier) })
		return
	}
	s.earlier = earlier
	s.start()
	had.leaves = true
	had.go_()
}

// leave ends an instance that was told to end, once it remembers all that it handled.
func (i *instance) leave() {
	if i.life.Leave(i.hubTime()) {
		i.remove()
		return
	}
	i.go_()
}

// leavesAgain is how long an operator waits for a trainer that was asked to leave until it is asked once more.
const leavesAgain = 5 * time.Second

// exchange has the process of a node leave and start again, with an agent of another build.
func (w *World) exchange(n *node, earlier bool) {
	n.earlier = earlier
	if n.started > 0 {
		w.startExchanged(n)
	}
}

func (w *World) startExchanged(n *node) {
	switch {
	case w.ended, n.process != nil && n.process.earlier == n.earlier:
		return
	case n.process == nil:
		n.gone = false
		w.launch(n)
		return
	}
	w.leave(n, 0)
	w.after(leavesAgain, func() { w.startExchanged(n) })
}

// Beside returns the script with two builds side by side: an upgrade, a return to the earlier build, or a return half way through an
// upgrade. Services go first where a cluster goes forward, in any order, and trainers where it goes back.
func (s Script) Beside(earlier string) Script {
	r := rand.New(rand.NewPCG(s.Seed, 41))
	s.Earlier = earlier
	s.Faults = slices.Clone(s.Faults)
	all := func(from, to time.Duration, words string, names []string) {
		for _, i := range r.Perm(len(names)) {
			at := from
			if to > from {
				at += time.Duration(r.Int64N(int64(to - from)))
			}
			s.Faults = append(s.Faults, Fault{At: at.Truncate(time.Millisecond), Words: words + " " + names[i]})
		}
	}
	var nodes []string
	for i := range s.Nodes {
		nodes = append(nodes, fmt.Sprintf("n%d", i+1))
	}
	const middle = (firstFault + lastFault) / 2
	back := r.IntN(3)
	if back != 1 {
		all(0, 0, "downgrade", serviceNames)
		all(0, 0, "downgrade", nodes)
	}
	switch back {
	case 0:
		all(firstFault, middle, "upgrade", serviceNames)
		all(middle, lastFault, "upgrade", nodes)
	case 1:
		all(firstFault, middle, "downgrade", nodes)
		all(middle, lastFault, "downgrade", serviceNames)
	default:
		all(firstFault, middle, "upgrade", serviceNames)
		all(middle, lastFault, "downgrade", serviceNames)
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	return s
}
