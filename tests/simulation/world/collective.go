package world

import (
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// collective is one step under one plan, as all its nodes take part in it: the passes of each pipeline, then the
// all-reduce of each group, round after round. A group ends for all who are in it or for nobody; but of those who were
// in it, some may hear so and be stopped before they go on, so that survivors are up to one step apart.
type collective struct {
	world   *World
	plan    *events.Plan
	step    uint64
	in      map[string]*process // who began it and was not stopped
	passing []bool              // by pipeline: its passes are under way
	passed  []bool
	groups  []*reduction
	polled  bool // somebody looks again soon whether a link is back
	broken  bool // it cannot be resumed
}

// reduction is the all-reduce of one group.
type reduction struct {
	events.Group
	round   int
	started bool
	done    bool
}

func newCollective(w *World, plan *events.Plan, step uint64) *collective {
	c := &collective{
		world: w, plan: plan, step: step, in: map[string]*process{},
		passing: make([]bool, len(plan.Pipelines)), passed: make([]bool, len(plan.Pipelines)),
	}
	for i, round := range plan.Sync.Rounds {
		for _, group := range round.Groups {
			c.groups = append(c.groups, &reduction{Group: group, round: i})
		}
	}
	return c
}

// begin lets a process take part.
func (c *collective) begin(p *process) {
	c.in[p.node.name] = p
	c.push()
}

// leave takes out a process that was stopped or died.
func (c *collective) leave(p *process) {
	if c.in[p.node.name] == p {
		delete(c.in, p.node.name)
	}
}

// push starts whatever can start now.
func (c *collective) push() {
	for i := range c.plan.Pipelines {
		if !c.passing[i] && c.together(c.crew(i)) {
			c.passing[i] = true
			c.world.after(c.passTime(i), func() { c.endPass(i) })
		}
	}
	for _, group := range c.groups {
		if !group.started && c.due(group) && c.together(group.Nodes) {
			group.started = true
			c.world.after(c.reduceTime(group), func() { c.endReduction(group) })
		}
	}
}

func (c *collective) endPass(pipeline int) {
	if !c.together(c.crew(pipeline)) {
		c.passing[pipeline] = false // who comes back begins anew
		c.push()
		return
	}
	c.passed[pipeline] = true
	for _, node := range c.crew(pipeline) {
		c.in[node].note(pipeline)
	}
	c.push()
	for _, node := range c.crew(pipeline) {
		c.endFor(node)
	}
}

func (c *collective) endReduction(group *reduction) {
	if !c.together(group.Nodes) {
		group.started = false
		c.push()
		return
	}
	group.done = true
	for _, node := range group.Nodes {
		p := c.in[node]
		c.world.after(c.world.jitter(10*time.Millisecond), func() {
			if c.in[node] == p && !p.stopped() {
				p.reduced(c, group.Layers)
				c.endFor(node)
			}
		})
	}
	c.push()
}

// endFor ends the step for a node that has done its part of it.
func (c *collective) endFor(node string) {
	p := c.in[node]
	if p == nil || p.stopped() || !c.passedBy(node) {
		return
	}
	layers, _ := c.plan.Holds(node)
	for _, group := range c.groups {
		if slices.Contains(group.Nodes, node) && !p.has(c, group.Layers) {
			return
		}
	}
	p.reduced(c, layers) // those that nobody else holds
	c.leave(p)
	p.stepped()
}

// resumed goes on with a process that was paused in the step.
func (c *collective) resumed(p *process) {
	for _, group := range c.groups {
		if group.done && slices.Contains(group.Nodes, p.node.name) {
			p.reduced(c, group.Layers)
		}
	}
	c.endFor(p.node.name)
	c.push()
}

// together reports whether all are in the step, run, and reach each other.
func (c *collective) together(nodes []string) bool {
	if c.broken {
		return false
	}
	for i, a := range nodes {
		if p := c.in[a]; p == nil || p.stopped() {
			return false
		}
		for _, b := range nodes[:i] {
			if !c.world.connected(c.plan, a, b) {
				c.poll()
				return false
			}
		}
	}
	return true
}

// poll looks again soon: a frame that a broken link lost is sent again.
func (c *collective) poll() {
	if c.polled {
		return
	}
	c.polled = true
	c.world.after(500*time.Millisecond, func() {
		c.polled = false
		if len(c.in) > 0 {
			c.push()
		}
	})
}

// crew is who does the passes of a pipeline: its stages' nodes, and who stands in for those that are lost.
func (c *collective) crew(pipeline int) []string {
	var crew []string
	add := func(node string) {
		if !slices.Contains(crew, node) {
			crew = append(crew, node)
		}
	}
	for _, stage := range c.plan.Pipelines[pipeline].Stages {
		if _, member := c.plan.Member(stage.Node); member {
			add(stage.Node)
			continue
		}
		for _, reroute := range c.plan.Reroutes {
			if reroute.From == stage.Node {
				add(reroute.To)
			}
		}
	}
	return crew
}

// passedBy reports whether a node has done all its passes.
func (c *collective) passedBy(node string) bool {
	for i := range c.plan.Pipelines {
		if !c.passed[i] && slices.Contains(c.crew(i), node) {
			return false
		}
	}
	return true
}

// due reports whether a group's turn has come.
func (c *collective) due(group *reduction) bool {
	for _, node := range group.Nodes {
		if !c.passedBy(node) {
			return false
		}
		for _, before := range c.groups {
			if before.round < group.round && !before.done && slices.Contains(before.Nodes, node) {
				return false
			}
		}
	}
	return true
}

func (c *collective) passTime(pipeline int) time.Duration {
	longest := 0.0
	for _, stage := range c.plan.Pipelines[pipeline].Stages {
		seconds := 0.0
		for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
			profile := c.world.job.Layers[layer]
			seconds += profile.ForwardSeconds + profile.BackwardSeconds
		}
		longest = max(longest, seconds*c.world.slowness(stage.Node))
	}
	return time.Duration(longest * float64(c.plan.Pipelines[pipeline].MicroBatches) * float64(time.Second))
}

func (c *collective) reduceTime(group *reduction) time.Duration {
	seconds := 0.0
	for i, a := range group.Nodes {
		for _, b := range group.Nodes[:i] {
			seconds = max(seconds, float64(c.world.job.Layers[group.Layers.First].GradientBytes)/c.world.bandwidth(a, b))
		}
	}
	return time.Duration(seconds * float64(time.Second))
}
