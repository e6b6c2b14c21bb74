package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// The negotiator asks for a plan where it finds that a node that waits has links which suffice, or that a link slows all; the planner
// decides. Were they of two minds, the one would ask and the other answer as before without an end, or a node wait for good.
func TestNegotiatorAndPlannerAgreeInTheEndWhoWaitsForItsLinks(t *testing.T) {
	waited := 0
	for seed := range uint64(3) {
		d := &dispute{dice: rand.New(rand.NewPCG(seed, 35))}
		d.world = New(Cluster{Seed: seed, Nodes: 4 + d.dice.IntN(3), Layers: 3, Kind: events.DataParallel, SamplesPerNode: 2}, true)
		d.world.Run(10 * time.Second)
		bad := d.news(t)
		d.world.Run(10 * time.Minute) // until what was put off is due
		told := len(d.world.Story)
		d.world.Run(5 * time.Minute)
		if opened := slices.IndexFunc(d.world.Story[told:], isOpening); opened >= 0 {
			t.Errorf("seed %d, %v: %s", seed, d.said, d.world.Story[told+opened])
		}
		plan := d.world.newestPlan()
		for _, n := range d.world.nodes {
			_, trains := plan.Holds(n.name)
			if want := n.name != bad; trains != want {
				t.Errorf("seed %d, %v: %s trains %v, expected %v\n%s", seed, d.said, n.name, trains, want, d.changes())
			}
		}
		if len(d.world.Violations) > 0 {
			t.Errorf("seed %d, %v: %v", seed, d.said, d.world.Violations)
		}
		waited += strings.Count(d.changes(), "link-measured")
	}
	if waited < 3 {
		t.Errorf("links changed who trains %d times in all", waited)
	}
}

func isOpening(line string) bool { return strings.Contains(line, " negotiation.opened ") }

// dispute is a world in which news of links come.
type dispute struct {
	dice  *rand.Rand
	world *World
	said  []string
}

// news has links become slower and faster at any time. In the end those of one node, or of none, which it returns, carry a twentieth,
// and all others what is usual: no pace is left that either may judge by what was before.
func (d *dispute) news(t *testing.T) (bad string) {
	names := make([]string, len(d.world.nodes))
	for i, n := range d.world.nodes {
		names[i] = n.name
	}
	for range 6 {
		if a, b := d.dice.IntN(len(names)), d.dice.IntN(len(names)); a != b {
			d.link(t, names[a], names[b], []float64{0.03, 0.1, 0.3, 0.6, 1}[d.dice.IntN(5)])
		}
		if node := names[d.dice.IntN(len(names))]; d.dice.IntN(2) == 0 {
			d.links(t, names, node, []float64{0.05, 0.2, 0.5, 1}[d.dice.IntN(4)])
		}
		d.world.Run(time.Duration(d.dice.IntN(90)) * time.Second)
	}
	if d.dice.IntN(4) > 0 {
		bad = names[d.dice.IntN(len(names))]
	}
	for _, node := range names {
		d.links(t, names, node, 1)
	}
	if bad != "" {
		d.links(t, names, bad, 0.05)
	}
	return bad
}

func (d *dispute) links(t *testing.T, names []string, node string, factor float64) {
	for _, other := range names {
		if other != node {
			d.link(t, node, other, factor)
		}
	}
}

func (d *dispute) link(t *testing.T, a, b string, factor float64) {
	words := fmt.Sprintf("link %s %s %v", a, b, factor)
	if err := d.world.Do(words); err != nil {
		t.Fatal(err)
	}
	d.said = append(d.said, words)
}

// changes are the negotiations and plans of the story.
func (d *dispute) changes() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(d.world.Story), func(line string) bool {
		return !isOpening(line) && !strings.Contains(line, " plan.committed ")
	}), "\n")
}
