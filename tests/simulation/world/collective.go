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
	places  *places
	step    uint64
	in      map[string]*process // who began it and was not stopped
	passing []bool              // by pipeline: its passes are under way
	passed  []bool
	left    map[string]int // by node: pipelines whose passes it has not done
	groups  []*reduction
	polled  bool // somebody looks again soon whether a link is back
	broken  bool // it cannot be resumed
}

// reduction is the all-reduce of one group.
type reduction struct {
	events.Group
	unpassed int // nodes of it that have not done all their passes
	started  bool
	done     bool
}

func newCollective(w *World, plan *events.Plan, step uint64) *collective {
	c := &collective{
		world: w, plan: plan, places: w.placesIn(plan), step: step, in: map[string]*process{},
		passing: make([]bool, len(plan.Pipelines)), passed: make([]bool, len(plan.Pipelines)), left: map[string]int{},
	}
	for node, pipelines := range c.places.pipelines {
		c.left[node] = len(pipelines)
	}
	for _, round := range plan.Sync.Rounds {
		for _, group := range round.Groups {
			inTurn := &reduction{Group: group}
			for _, node := range group.Nodes {
				inTurn.unpassed += min(c.left[node], 1)
			}
			c.groups = append(c.groups, inTurn)
		}
	}
	return c
}

// begin lets a process take part.
func (c *collective) begin(p *process) {
	c.in[p.node.name] = p
	c.push(p.node.name)
}

// leave takes out a process that was stopped or died.
func (c *collective) leave(p *process) {
	if c.in[p.node.name] == p {
		delete(c.in, p.node.name)
	}
}

// push starts whatever can start now that something has changed for some nodes, and for no other unless a link was
// found broken.
func (c *collective) push(nodes ...string) {
	if c.polled {
		c.pushAll()
		return
	}
	var pipelines, groups []int
	for _, node := range nodes {
		pipelines, groups = append(pipelines, c.places.pipelines[node]...), append(groups, c.places.groups[node]...)
	}
	slices.Sort(pipelines)
	slices.Sort(groups)
	for _, i := range slices.Compact(pipelines) {
		c.startPass(i)
	}
	for _, i := range slices.Compact(groups) {
		c.startReduction(c.groups[i], c.places.before[i])
	}
}

func (c *collective) pushAll() {
	for i := range c.passing {
		c.startPass(i)
	}
	for i, group := range c.groups {
		c.startReduction(group, c.places.before[i])
	}
}

func (c *collective) startPass(pipeline int) {
	if !c.passing[pipeline] && c.together(c.places.crews[pipeline]) {
		c.passing[pipeline] = true
		c.world.after(c.passTime(pipeline), func() { c.endPass(pipeline) })
	}
}

func (c *collective) startReduction(group *reduction, before []int) {
	waits := func(i int) bool { return !c.groups[i].done }
	if !group.started && group.unpassed == 0 && !slices.ContainsFunc(before, waits) && c.together(group.Nodes) {
		group.started = true
		c.world.after(c.reduceTime(group), func() { c.endReduction(group) })
	}
}

func (c *collective) endPass(pipeline int) {
	crew := c.places.crews[pipeline]
	if !c.together(crew) {
		c.passing[pipeline] = false // who comes back begins anew
		c.push(crew...)
		return
	}
	c.pass(pipeline)
	for _, node := range crew {
		c.in[node].note(pipeline)
	}
	c.push(crew...)
	for _, node := range crew {
		c.endFor(node)
	}
}

// pass notes that the passes of a pipeline are done.
func (c *collective) pass(pipeline int) {
	c.passed[pipeline] = true
	for _, node := range c.places.crews[pipeline] {
		if c.left[node]--; c.left[node] > 0 {
			continue
		}
		for _, i := range c.places.groups[node] {
			c.groups[i].unpassed--
		}
	}
}

func (c *collective) endReduction(group *reduction) {
	if !c.together(group.Nodes) {
		group.started = false
		c.pushAll()
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
	c.push(group.Nodes...)
}

// endFor ends the step for a node that has done its part of it.
func (c *collective) endFor(node string) {
	p := c.in[node]
	if p == nil || p.stopped() || !c.passedBy(node) {
		return
	}
	for _, i := range c.places.groups[node] {
		if !p.has(c, c.groups[i].Layers) {
			return
		}
	}
	p.reduced(c, c.places.layers[node]) // those that nobody else holds
	if p.node.updates == 0 {
		c.leave(p)
		p.stepped()
	} else if p.updating != c {
		p.updating = c
		p.later(p.node.updates, func() {
			if c.in[node] == p {
				c.leave(p)
				p.stepped()
			}
		})
	}
}

// resumed goes on with a process that was paused in the step.
func (c *collective) resumed(p *process) {
	for _, group := range c.groups {
		if group.done && slices.Contains(group.Nodes, p.node.name) {
			p.reduced(c, group.Layers)
		}
	}
	c.endFor(p.node.name)
	c.pushAll()
}

// together reports whether all are in the step, run, and reach each other.
func (c *collective) together(nodes []string) bool {
	if c.broken {
		return false
	}
	missing := slices.IndexFunc(nodes, func(node string) bool { return c.in[node] == nil || c.in[node].stopped() })
	there := nodes
	if missing >= 0 {
		there = nodes[:missing]
	}
	if !c.world.allConnected(c.plan, there) {
		c.poll()
		return false
	}
	return missing < 0
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
			c.pushAll()
		}
	})
}

// getsOn reports whether a process takes part in something that is under way, and runs.
func (c *collective) getsOn(p *process) bool {
	passes := func(pipeline int) bool { return c.passing[pipeline] && !c.passed[pipeline] }
	reduces := func(group int) bool { return c.groups[group].started && !c.groups[group].done }
	return !p.stopped() && (slices.ContainsFunc(c.places.pipelines[p.node.name], passes) ||
		slices.ContainsFunc(c.places.groups[p.node.name], reduces))
}

// passedBy reports whether a node has done all its passes.
func (c *collective) passedBy(node string) bool { return c.left[node] == 0 }

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
	if len(group.Nodes) < 2 {
		return 0
	}
	bytes := c.world.job.Layers[group.Layers.First].GradientBytes
	return time.Duration(float64(bytes) / c.world.leastBandwidth(group.Nodes) * float64(time.Second))
}
