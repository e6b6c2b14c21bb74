package machine

import (
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// finals has a node tell that training is complete for it after so many steps, as it is usually told, but for a change.
func (w *world) finals(node string, step uint64, change func(*events.Digests)) {
	digests := &events.Digests{
		Node: node, Incarnation: w.process[node], Generation: w.plan.Generation, Step: step, Final: true,
	}
	for unit := range 3 * (1 + w.partitions) {
		digests.Units = append(digests.Units, events.UnitDigest{Unit: unit, Digest: events.Digest([]byte{byte(unit)})})
	}
	if change != nil {
		change(digests)
	}
	w.hear(events.TrainingDigested, "/node/"+node, node, digests)
	w.run()
}

// end is what the log says of the end of the job; nil: it says nothing yet.
func (w *world) end() *events.JobEnd {
	for _, event := range w.said {
		if event.Kind == events.TrainingCompleted {
			end := must[events.JobEnd](w.t, event)
			return &end
		}
	}
	return nil
}

func TestWhatAnEarlierProcessToldOfTheEndCountsForNone(t *testing.T) {
	w := newWorld(t, 2)
	w.finals("n1", 9, nil)
	w.finals("n2", 9, func(digests *events.Digests) { digests.Incarnation = "earlier" })
	if end := w.end(); end != nil {
		t.Errorf("the job ended by the word of another process: %+v", end)
	}
	w.finals("n2", 9, func(digests *events.Digests) { digests.Incarnation = "" }) // an agent of before
	if w.end() == nil {
		t.Error("expected that the word of an agent that tells no incarnation counts")
	}
}

// A new plan may go back: what it gives a node was not trained to the end yet.
func TestWhatWasToldOfTheEndUnderAnOlderPlanCountsForNone(t *testing.T) {
	w := newWorld(t, 3)
	w.finals("n1", 9, nil)
	w.lose("n3")
	w.run()
	if w.plan.Generation != 2 {
		t.Fatalf("generation %d, expected a second plan", w.plan.Generation)
	}
	w.finals("n2", 9, nil)
	if end := w.end(); end != nil {
		t.Errorf("the job ended, and n1 has told nothing under the plan in force: %+v", end)
	}
	w.finals("n1", 9, nil)
	if w.end() == nil {
		t.Error("expected the end once all have told of it under the plan in force")
	}
}

func TestTheJobEndsAtNoOtherStepThanItsLast(t *testing.T) {
	w := newEmptyWorld(t, 2, 0)
	w.steps = 40
	w.begin(2)
	for _, step := range []uint64{39, 41} {
		w.finals("n1", step, nil)
		w.finals("n2", step, nil)
		if end := w.end(); end != nil {
			t.Fatalf("the job of 40 steps ended: %+v", end)
		}
	}
	w.finals("n1", 40, nil)
	w.finals("n2", 40, nil)
	if end := w.end(); end == nil || end.Step != 40 {
		t.Errorf("expected the end after 40 steps, got %+v", end)
	}
}

func TestTheEndNamesTheUnitsInWhichHoldersDiffer(t *testing.T) {
	w := newWorld(t, 3)
	w.finals("n1", 9, nil)
	w.finals("n2", 9, func(digests *events.Digests) { digests.Units[1].Digest = events.Digest([]byte("another")) })
	w.finals("n3", 9, nil) // whoever is right, two models are there
	want := []events.Range{{First: 1, End: 2}}
	if end := w.end(); end == nil || end.Digest != "" || !slices.Equal(end.Differ, want) {
		t.Errorf("expected no digest, and that unit 1 differs, got %+v", end)
	}
}

// Scripts that know nothing of Reknit have steps that their agents make up: these pass one now and then while they wait.
func TestWhoTellsOfAnotherStepIsHeardWhenItTellsAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.finals("n1", 3, nil)
	w.finals("n2", 4, nil)
	if end := w.end(); end != nil {
		t.Fatalf("the job ended at two steps: %+v", end)
	}
	w.finals("n1", 4, nil)
	if end := w.end(); end == nil || end.Step != 4 {
		t.Errorf("expected the end at step 4, got %+v", end)
	}
}

// What a node held a step before is no other model than what the others hold.
func TestDigestsOfAnEarlierStepAreNotComparedAtTheEnd(t *testing.T) {
	without := func(digests *events.Digests) { digests.Units = nil }
	w := newWorld(t, 2)
	w.finals("n1", 3, func(digests *events.Digests) { digests.Units[1].Digest = events.Digest([]byte("a step before")) })
	w.finals("n2", 4, nil)
	w.finals("n1", 4, without)
	if end := w.end(); end == nil || len(end.Differ) > 0 || end.Digest == "" {
		t.Errorf("expected the end with n2's digest, got %+v", end)
	}
}

func TestWhatIsToldLateOfAnEarlierStepTakesNothingBack(t *testing.T) {
	w := newWorld(t, 2)
	w.finals("n1", 4, nil)
	w.finals("n2", 3, nil)
	w.finals("n2", 4, nil)
	if end := w.end(); end == nil || end.Step != 4 {
		t.Errorf("expected the end at step 4, got %+v", end)
	}
}

// The log forgets what is older than three days, and who looks on a week later, or comes with a trainer, is to know of the end.
func TestTheEndIsToldAgainBeforeTheLogForgetsIt(t *testing.T) {
	w := newWorld(t, 1)
	w.finals("n1", 9, nil)
	ended := w.now
	for range 7 * 24 {
		w.now = w.now.Add(time.Hour)
		w.lose("n1") // whatever is logged, the log's clock goes on
		w.run()
		w.tick(time.Second)
	}
	ids := map[string]bool{}
	for _, event := range w.said {
		if event.Kind == events.TrainingCompleted {
			ids[event.ID] = true
			if !event.Time.Equal(ended) {
				t.Errorf("it is told to have ended %v later", event.Time.Sub(ended))
			}
		}
	}
	if len(ids) != 1+7 {
		t.Errorf("in a week it is told %d times", len(ids))
	}
}

// ends returns when the job has ended, as is told each time.
func (w *world) ends() (times []time.Time) {
	for _, event := range w.said {
		if event.Kind == events.TrainingCompleted {
			times = append(times, event.Time)
		}
	}
	return times
}

// Nodes are gone, and nothing is logged; the negotiator is moved to another machine each night.
func TestTheEndIsToldAgainThoughNothingIsHeardAndTheNegotiatorIsRestartedEachDay(t *testing.T) {
	w := newWorld(t, 1)
	w.finals("n1", 9, nil)
	for range 7 * 2 {
		w.now = w.now.Add(12 * time.Hour)
		w.restart()
		w.tick(time.Second)
	}
	if told := len(w.ends()); told != 1+7 {
		t.Errorf("in a week it is told %d times", told)
	}
}

func TestAnEndThatABuildOfBeforeRemembersIsToldOnceWithATime(t *testing.T) {
	w := newWorld(t, 1)
	w.finals("n1", 9, nil)
	ended := w.now
	w.machine.state.Ended, w.machine.state.EndTold = time.Time{}, time.Time{} // which it did not remember
	w.restart()
	w.now = w.now.Add(time.Hour)
	w.mute[events.TrainingCompleted] = true // the log takes a while
	w.tick(10 * time.Second)
	if ends := w.ends(); len(ends) != 2 || !ends[1].Equal(ended) {
		t.Errorf("it is told to have ended %v, expected twice %v", ends, ended)
	}
}

// Whose script has no step left tells of step 0.
func TestFinalsOfABuildOfBeforeAreToldAnew(t *testing.T) {
	w := newWorld(t, 2)
	w.finals("n1", 0, nil)
	w.machine.state.Finals.Nodes = nil // which had another name
	w.restart()
	w.finals("n2", 0, nil)
	if w.end() != nil {
		t.Error("the job is complete without n1")
	}
	w.finals("n1", 0, nil)
	if w.end() == nil {
		t.Error("the job is not complete")
	}
}

func TestANegotiatorThatLostItsMemoryHearsOfTheEnd(t *testing.T) {
	w := newWorld(t, 1)
	w.hear(events.TrainingCompleted, "/negotiator", "opticks", &events.JobEnd{Generation: 1, Step: 9, Nodes: []string{"n1"}})
	w.join("n2")
	w.run()
	if refused := w.refusals("n2"); len(refused) != 1 || !refused[0].Complete {
		t.Errorf("who comes later is told %+v", refused)
	}
}

// A container of the same job that is started again is not to loop; who brings another job made no step of it, and is told so.
func TestWhoComesAfterTheEndHearsWhetherItsJobIsDone(t *testing.T) {
	w := newEmptyWorld(t, 1, 0)
	w.steps = 40
	w.begin(1)
	w.finals("n1", 40, nil)
	w.join("n1")
	w.steps = 300
	w.join("n2")
	w.run()
	for node, isOther := range map[string]bool{"n1": false, "n2": true} {
		refused := w.refusals(node)
		want := "this cluster's job is complete: step 40 was made. To begin another one here: reknit cluster reset"
		if len(refused) != 1 || !refused[0].Complete || refused[0].OtherJob != isOther || refused[0].Reason != want {
			t.Errorf("%s is told %+v", node, refused)
		}
	}
}
