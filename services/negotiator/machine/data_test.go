package machine

import (
	"testing"

	"github.com/reknit/reknit/events"
)

// newFollowingWorld trains 6 samples a step for each node. At 12 the learning rate is what the job says.
func newFollowingWorld(t *testing.T, nodes int) *world {
	w := newEmptyWorld(t, nodes, 0)
	w.batchRule = &events.BatchRule{SamplesPerNode: 6, LearningRate: "linear", WarmUpSteps: 4}
	w.begin(nodes)
	return w
}

func TestWhereTheBatchFollowsTheNodesThePositionInTheDataFollowsTheBatch(t *testing.T) {
	w := newFollowingWorld(t, 3)
	w.step = 10
	w.lose("n3")
	w.run()
	w.restart() // it remembers what was trained
	w.step = 15
	w.lose("n2")
	w.run()
	want := []events.Data{
		{GlobalBatch: 18, MicroBatch: 1}, {GlobalBatch: 12, MicroBatch: 1, ConsumedSamples: 180},
		{GlobalBatch: 6, MicroBatch: 1, ConsumedSamples: 180 + 5*12},
	}
	for i, plan := range w.plans() {
		if plan.Data != want[i] {
			t.Errorf("plan %d goes on at %+v, expected %+v", plan.Generation, plan.Data, want[i])
		}
	}
}

func TestTheLearningRateWarmsUpFromWhereItIs(t *testing.T) {
	w := newFollowingWorld(t, 3)
	w.step = 10
	w.lose("n3")
	w.run()
	w.step = 11 // one of four steps from a scale of 1.5 to 1
	w.lose("n2")
	w.run()
	plans := w.plans()
	if plans[0].WarmUp != nil || plans[0].LearningRateScale != 1.5 {
		t.Errorf("the first plan warms up: %+v", plans[0].WarmUp)
	}
	want := []events.WarmUp{{FromScale: 1.5, FirstStep: 10, Steps: 4}, {FromScale: 1.25, FirstStep: 11, Steps: 4}}
	for i, plan := range plans[1:] {
		if plan.WarmUp == nil || *plan.WarmUp != want[i] {
			t.Errorf("plan %d warms up as %+v, expected %+v", plan.Generation, plan.WarmUp, want[i])
		}
	}
}

func TestAWarmUpGoesOnThroughAPlanOfTheSameBatchAndEndsOnce(t *testing.T) {
	w := newFollowingWorld(t, 3)
	w.step = 10
	w.lose("n3")
	w.run()
	link := &events.LinkRequest{From: "n1", To: "n2"}
	w.hear(events.DisconnectRequested, "/user", "n1", link)
	w.run()
	w.step = 30
	w.hear(events.ConnectRequested, "/user", "n1", link)
	w.run()
	plans := w.plans()
	if got := plans[2].WarmUp; got == nil || got.FirstStep != 10 {
		t.Errorf("in the middle of a warm-up a plan of the same batch says %+v", got)
	}
	if got := plans[3].WarmUp; got != nil {
		t.Errorf("20 steps on it still warms up: %+v", got)
	}
}
