package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/simulation/world"
)

// The job is data-parallel, the only kind in which a trainer that hangs is found: each node trains one sample of each
// step, for ten seconds, and replicas are compared every hundred steps, as trainers do.
const (
	layers       = 4
	layerSeconds = 2.5
	compareEvery = 100
)

// calm is how long nothing fails at first. Its second half tells how long a step takes.
const calm = 20 * time.Minute

// sampleEvery is how often sizes are looked at.
const sampleEvery = time.Hour

// judged events of the log are kept and judged with tests/invariants; there are millions of a thousand nodes. Later events are checked as
// they are stored, and as they are trained.
const judged = 60_000

// course is one run, and what was seen of it.
type course struct {
	world   *world.World
	random  *rand.Rand
	nodes   int
	perDay  float64  // failures of a node
	names   []string // of the nodes that are there, or come back
	hosts   int      // that ever were
	long    time.Duration
	seed    uint64
	struck  map[string]*strike
	counts  map[string]int // failures by kind
	lost    map[string]int // nodes that were said lost, by kind of failure
	falsely []string       // living nodes that were said lost
	told    map[events.Kind]int
	bytes   map[events.Kind]int // of their data
	found   []time.Duration     // after which failures were said
	steps   steps
	samples []sample
	end     string
}

// strike is a failure of a node that is not over.
type strike struct {
	kind kind
	at   time.Duration
	lost bool // and said to be
	over bool // it would be, had it been found
}

// play runs a cluster for a while in which each node fails so often a day, and tells of it as it goes. It ends sooner, and is
// judged as far as it came, where ctx ends.
func play(ctx context.Context, nodes int, perDay float64, long time.Duration, seed uint64, progress io.Writer) *course {
	c := &course{
		world: world.New(world.Cluster{
			Seed: 2 * seed, Nodes: nodes, Layers: layers, Kind: events.DataParallel, SamplesPerNode: 1,
			LayerSeconds: layerSeconds, CompareEvery: compareEvery, Judged: judged, Provisioned: true,
		}, false),
		random: rand.New(rand.NewPCG(seed, 3)), nodes: nodes, perDay: perDay, long: long, seed: seed,
		struck: map[string]*strike{}, counts: map[string]int{}, lost: map[string]int{}, told: map[events.Kind]int{},
		bytes: map[events.Kind]int{},
	}
	for range nodes {
		c.names = append(c.names, c.newName())
	}
	c.world.Heard, c.world.Stepped = c.hear, c.step
	due, told := c.schedule(), &rows{to: progress}
	for at := sampleEvery; len(c.world.Violations) == 0; at += sampleEvery {
		for len(due) > 0 && due[0].at <= min(at, long) {
			c.world.Run(due[0].at - c.world.Now())
			due[0].do()
			due = due[1:]
		}
		if at > long || ctx.Err() != nil {
			break
		}
		c.world.Run(at - c.world.Now())
		c.samples = append(c.samples, c.look())
		told.tell(c)
	}
	if ctx.Err() != nil {
		c.long = c.world.Now()
	}
	c.world.Run(max(c.long-c.world.Now(), 0))
	c.samples = append(c.samples, c.look())
	c.steps.end = c.world.Now()
	c.end = c.world.Settle()
	return c
}

// deed is something that the course does to the world.
type deed struct {
	at time.Duration
	do func()
}

// schedule returns all that happens to nodes, in its order. The victim is chosen when the failure happens.
func (c *course) schedule() []deed {
	var due []deed
	for _, f := range failures(c.random, c.nodes, c.perDay, c.long) {
		victim := ""
		due = append(due, deed{f.at, func() { victim = c.strike(f) }}, deed{f.back, func() { c.mend(f, victim) }})
	}
	slices.SortStableFunc(due, func(a, b deed) int { return int(a.at - b.at) })
	return due
}

// strike has a node that trains fail, and returns its name; empty where none trains.
func (c *course) strike(f failure) (victim string) {
	for range 100 {
		victim = c.names[c.random.IntN(c.nodes)]
		if c.struck[victim] == nil && c.world.Runs(victim) {
			c.struck[victim] = &strike{kind: f.kind, at: c.world.Now()}
			c.counts[f.kind.name]++
			// A network comes back after its host.
			c.do(f.kind.strike, "NODE", victim, "TIME", (f.back - f.at + time.Second).String())
			return victim
		}
	}
	return ""
}

// mend has a node come back, or another in its place. A trainer hangs until that is found.
func (c *course) mend(f failure, victim string) {
	if victim == "" {
		return
	}
	if slices.Contains(f.kind.mend, "start NEW") {
		c.names[slices.Index(c.names, victim)] = c.newName()
	}
	c.do(f.kind.mend, "NODE", victim, "NEW", fmt.Sprintf("n%d", c.hosts))
	if struck := c.struck[victim]; f.kind.mend == nil && !struck.lost {
		struck.over = true
		return
	}
	delete(c.struck, victim)
}

// newName returns the next name that no node has had, as tests/simulation/world numbers them.
func (c *course) newName() string {
	c.hosts++
	return fmt.Sprintf("n%d", c.hosts)
}

func (c *course) do(faults []string, words ...string) {
	for _, fault := range faults {
		if err := c.world.Do(strings.NewReplacer(words...).Replace(fault)); err != nil {
			panic(err) // see kinds
		}
	}
}

// hear takes what a stream has stored.
func (c *course) hear(event events.Event) {
	c.told[event.Kind]++
	c.bytes[event.Kind] += len(event.Data)
	if event.Kind != events.NodeLost {
		return
	}
	lost, err := events.Open[events.NodeState](event)
	if err != nil {
		panic(err) // the world has read it
	}
	now, struck := c.world.Now(), c.struck[lost.Node]
	switch {
	case c.world.IsWell(lost.Node, lost.Incarnation):
		c.falsely = append(c.falsely, fmt.Sprintf("%s after %v: %s", lost.Node, now, lost.Reason))
	case struck != nil && !struck.lost:
		struck.lost = true
		c.lost[struck.kind.name]++
		c.found = append(c.found, now-struck.at)
	}
	if struck != nil && struck.over {
		delete(c.struck, lost.Node)
	}
}

// unfound lists who failed long ago, was not said lost, and has not trained since.
func (c *course) unfound() []string {
	var unfound []string
	for name, struck := range c.struck {
		if struck.kind.silent && !struck.lost && !c.world.Runs(name) && c.steps.end-struck.at > longestAway {
			unfound = append(unfound, fmt.Sprintf("%s (%s) for %v", name, struck.kind.name, c.steps.end-struck.at))
		}
	}
	slices.Sort(unfound)
	return unfound
}
