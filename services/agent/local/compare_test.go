package local

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestEveryHundredStepsADigestOfTheStateIsTold(t *testing.T) {
	r := newRig(t)
	c, order := r.train()
	for done := range uint64(compareEvery) {
		order = c.next(orderStep, Report{Order: order.ID, Done: done + 1})
	}
	said := await[events.Digests](r, events.TrainingDigested)
	if said.Node != "n1" || said.Step != compareEvery || said.Generation != 1 || said.Final || len(said.Units) != 2 {
		t.Fatalf("told: %+v", said)
	}
	for _, unit := range said.Units {
		content, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("unit-%d", unit.Unit)))
		if err != nil || unit.Digest != events.Digest(content) {
			t.Errorf("unit %d: told %s, and its file says otherwise (%v)", unit.Unit, unit.Digest, err)
		}
	}
}

// To hash 10 GB takes seconds, for which nobody is to wait who has a failure to heal, nor is the trainer to be taken for one
// that hangs.
func TestWhoIsNeededInItsLastStepHashesNothingBefore(t *testing.T) {
	r := newRig(t)
	c := r.join(strings.Replace(usualJoin, "{", `{"totalSteps":1,`, 1))
	r.commit(0, c.member)
	step := c.next(orderStep, Report{Order: c.next(orderAdopt, Report{}).ID})
	r.abandon(c.member)
	c.line() // it is told to give the step up, and has just made it
	finished := make(chan Order, 1)
	go func() {
		adopt := c.next(orderAdopt, Report{Order: step.ID, Done: 1})
		finished <- c.next(orderFinished, Report{Order: adopt.ID, Done: 1})
	}()
	if last := await[events.Digests](r, events.TrainingDigested); !last.Final || last.Step != 1 || len(last.Units) > 0 {
		t.Errorf("it tells of its last step %+v", last)
	}
	r.commit(1, c.member)
	if last := await[events.Digests](r, events.TrainingDigested); last.Generation != 2 || len(last.Units) != 2 {
		t.Errorf("it tells under the next plan %+v, expected the digests of its units", last)
	}
	r.complete(1)
	<-finished
}

func TestOfCopiedStateNoDigestIsToldAndOfReplicasThatAreAlikeNeither(t *testing.T) {
	for _, field := range []string{`"state":"copied",`, `"job":{"replicas":"alike"},`} {
		r := newRig(t)
		c := r.join(strings.Replace(usualJoin, "{", "{"+field, 1))
		r.commit(0, c.member)
		order := c.next(orderStep, Report{Order: c.next(orderAdopt, Report{}).ID})
		for done := range uint64(compareEvery) {
			order = c.next(orderStep, Report{Order: order.ID, Done: done + 1})
		}
		c.expect(200, nil, "POST", "/v1/leave", `{"reason":"the end"}`)
		for said := range r.said {
			if said.Kind == events.TrainingDigested {
				t.Errorf("%s: told %s", field, said.Data)
			}
			if said.Kind == events.LeaveRequested {
				break
			}
		}
	}
}

func TestAllUnitsAreComparedInTurnAndOnesTooLargeAlone(t *testing.T) {
	sizes := []int{mostCompared / 2, mostCompared / 2, 1, mostCompared + 1, 1}
	var units [][]byte
	for _, size := range sizes {
		units = append(units, make([]byte, size))
	}
	expected := []events.Range{{First: 0, End: 2}, {First: 2, End: 3}, {First: 3, End: 4}, {First: 4, End: 5}, {First: 0, End: 2}}
	for number, want := range expected {
		if got := turnOf(units, uint64(number)); !reflect.DeepEqual(got, want) {
			t.Errorf("turn %d: got %v, expected %v", number, got, want)
		}
	}
}
