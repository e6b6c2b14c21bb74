package local

import (
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// stage joins as a lazy trainer of two layers, and is given the second one in a pipeline with a stranger.
func (r *rig) stage() (c *client, adopt Order) {
	r.Helper()
	c = r.join(strings.Replace(usualJoin, "{", `{"lazy":true,"job":{"kind":"pipeline"},`, 1))
	stranger := events.Member{Node: "n2", Incarnation: "1", Address: "127.0.0.1:9"}
	r.commitPipelines(0, []events.Member{c.member, stranger}, events.Pipeline{MicroBatches: 8, Stages: []events.Stage{
		{Node: "n2", Layers: events.Range{First: 0, End: 1}}, {Node: c.member.Node, Layers: events.Range{First: 1, End: 2}},
	}})
	give := c.next(orderGive, Report{})
	if !slices.Equal(give.Units, []int{1}) || give.Step != 0 {
		r.Errorf("it is to make the first state of %v at step %d: expected its stage's", give.Units, give.Step)
	}
	return c, c.next(orderAdopt, Report{Order: give.ID})
}

func TestALazyTrainerMakesTheFirstStateOfItsStageAndIsToldWhoseStagesTheOthersAre(t *testing.T) {
	c, adopt := newRig(t).stage()
	step := c.next(orderStep, Report{Order: adopt.ID})
	if step.Rank != 1 || step.World != 2 || step.Plan == nil || len(step.Plan.Pipelines[0].Stages) != 2 {
		t.Errorf("it trains %+v", step.Training)
	}
}

func TestTheSpeedOfAStageIsThatOfItsLayers(t *testing.T) {
	r := newRig(t)
	c, order := r.stage()
	order = c.next(orderStep, Report{Order: order.ID})
	for done := range uint64(22) {
		computed := 8 * 0.5 / 4 // one of two layers, that are said to take a second together
		order = c.next(orderStep, Report{Order: order.ID, Done: done + 1, MicroBatches: 8, ComputeSeconds: computed})
	}
	profile := await[events.Profile](r, events.NodeProfiled)
	if profile.SpeedFactor < 3.99 || profile.SpeedFactor > 4.01 {
		t.Errorf("it is said to be %v times as fast as declared: expected 4", profile.SpeedFactor)
	}
}
