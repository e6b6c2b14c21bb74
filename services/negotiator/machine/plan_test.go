package machine

import (
	"reflect"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestRequestsSayOfThePlanInForceWhoTrainsWhatAndNotHowItCameAbout(t *testing.T) {
	w := newWorld(t, 4)
	w.transfer = true
	w.join("n5") // for whom units move
	w.run()
	before := *w.plan
	if len(before.Migration.Transfers) == 0 {
		t.Fatal("nothing moved")
	}
	w.lose("n2")
	w.run()
	for _, current := range []*events.Plan{
		lastAsked[events.PlanRequest](w, events.PlanRequested).Current,
		lastAsked[events.RestorationRequest](w, events.RestorationAsked).Current,
	} {
		if current.Generation != before.Generation || !reflect.DeepEqual(current.Pipelines, before.Pipelines) || current.Data != before.Data {
			t.Errorf("%+v is told, expected %+v", current, before)
		}
		for i, member := range current.Nodes {
			if full := before.Nodes[i]; member.Node != full.Node || member.Incarnation != full.Incarnation || member.Address != "" {
				t.Errorf("%+v is told of %+v", member, full)
			}
		}
		if len(current.Migration.Transfers) > 0 || current.Predicted.StepSeconds > 0 {
			t.Errorf("it is told how the plan came about: %+v", current)
		}
	}
}
