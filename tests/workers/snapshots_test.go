package workers

import (
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/reknit/reknit/events"
)

const snapshotEvery = 20 // steps

// toBucket has workers write snapshots to a folder that all read, as they would to an S3-compatible store.
func toBucket(folder string) []string {
	return []string{
		"REKNIT_SNAPSHOT_BUCKET=file://" + folder + "?no_tmp_dir=true&metadata=skip",
		"REKNIT_SNAPSHOT_REMOTE_EVERY=" + itoa(snapshotEvery),
	}
}

func TestWhereAllWorkersAreKilledAtOnceTrainingGoesBackToTheNewestSnapshot(t *testing.T) {
	t.Parallel()
	bucket := toBucket(t.TempDir())
	c := newCluster(t, 3, 200)
	reached := killAll(c.startThree(bucket), 90)
	again := c.startThree(bucket)
	again[0].expectASnapshot(reached)
	c.expectTheEndOfTrainingAlone(again...)
}

func TestWhereAllTrainersAreKilledAndTheirAgentsLiveTrainingGoesOnFromWhatTheseHave(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 200)
	workers := c.startThree([]string{"REKNIT_SNAPSHOT_MEMORY_EVERY=" + itoa(snapshotEvery)})
	for _, w := range workers {
		w.await("a plan", func(line said) bool { return line.Adopted != nil })
	}
	reached := workers[0].await("steps", func(line said) bool { return line.Done >= 90 }).Done
	for _, w := range workers {
		w.signal(w.pid, syscall.SIGKILL) // its agent starts it again
	}
	least := math.MaxInt // of whoever is back first: it may have trained on alone when the others come, or be one step behind the first
	for _, w := range workers {
		w.await("its next start", func(line said) bool { return line.PID > 0 })
		least = min(least, *w.adopts().Adopted)
	}
	if least < reached-1 { // all were killed while they wrote an update, so that what their agents have in memory is the newest
		expectASnapshot(t, least, reached)
	}
	c.expectTheEndOfTrainingAlone(workers...)
}

func TestAJobThatIsStoppedEndsWithASnapshotAndGoesOnFromThatStep(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 120)
	folders := t.TempDir()
	start := func() []*worker { return c.startTogether(toDiskIn(folders), "n1", "n2") }
	workers := start()
	workers[0].await("steps", func(line said) bool { return line.Done >= 30 })
	c.reknit("stop")
	stopped := c.expectStopped(workers)
	again := start()
	if step := *again[0].adopts().Adopted; step != int(stopped.Step) || stopped.Step < 30 {
		t.Errorf("training goes on from step %d: expected %d, after which it was stopped", step, stopped.Step)
	}
	c.expectTheEndOfTrainingAlone(again...)
}

// expectStopped returns how the log tells that training has stopped, once all scripts and agents have ended well.
func (c *cluster) expectStopped(workers []*worker) events.JobStop {
	c.Helper()
	for _, w := range workers {
		w.untilItsEnd()
		if err := w.agent.Wait(); err != nil {
			c.Errorf("%s ends with %v: expected status 0", w.node, err)
		}
	}
	stopped, err := events.Open[events.JobStop](c.awaitEvent(events.TrainingStopped, func(events.Event) bool { return true }))
	if err != nil {
		c.Fatal(err)
	}
	return stopped
}

func TestAWholeClusterStartsAnewFromTheBucket(t *testing.T) {
	t.Parallel()
	bucket := toBucket(t.TempDir())
	killAll(newCluster(t, 3, 200).startThree(bucket), 90)
	c := newCluster(t, 3, 200) // another server, and nothing in its log
	workers := c.startThree(bucket)
	if step := *workers[0].adopts().Adopted; step < 90-2*snapshotEvery {
		t.Errorf("training begins at step %d: expected that of a snapshot", step)
	}
	c.expectTheEndOfTrainingAlone(workers...)
}

func TestWhereTheBatchFollowsTheNodesAClusterOfFewerStartsAnewWithTheSamplesThatAreDue(t *testing.T) {
	t.Parallel()
	settings := append(toBucket(t.TempDir()), "WORKER_SAMPLES_PER_NODE=4")
	gone := newCluster(t, 3, 200)
	killAll(gone.startThree(settings), 90)
	c := newCluster(t, 2, 200)
	start := func() []*worker { return c.startTogether(alike(settings), "n1", "n2") }
	workers := start()
	step := *workers[0].adopts().Adopted
	killAll(workers, step+5) // before there is another snapshot
	workers = start()
	if again := *workers[0].adopts().Adopted; again != step {
		t.Errorf("training goes back to step %d: expected %d, of the cluster before", again, step)
	}
	if one, other := workers[0].finish(), workers[1].finish(); one != other {
		t.Errorf("two replicas end with %s and %s", one, other)
	}
	if err := c.ledger.checkAfter(&gone.ledger, gone.plans(), c.plans(), 200); err != nil {
		t.Error(err)
	}
}

func TestWithoutSnapshotsTheEndOfAllWorkersIsHeldAndWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 200)
	killAll(c.startThree(nil), 30)
	c.startThree(nil)
	if held := c.untilHeld("no snapshot"); !strings.Contains(held, "layer 0, layer 1") {
		t.Errorf("held: %s", held)
	}
}

func (c *cluster) startThree(settings []string) []*worker {
	c.Helper()
	return c.startTogether(alike(settings), "n1", "n2", "n3")
}

// alike are the same settings for each worker.
func alike(settings []string) func(string) []string {
	return func(string) []string { return slices.Clone(settings) }
}

// killAll kills workers and their agents, once so many steps are completed, and returns how many were.
func killAll(workers []*worker, steps int) int {
	reached := workers[0].await("steps", func(line said) bool { return line.Done >= steps }).Done
	for _, w := range workers {
		w.signal(w.agent.Process.Pid, syscall.SIGKILL)
		_ = syscall.Kill(w.pid, syscall.SIGKILL) // it may have ended with its agent already
	}
	return reached
}

// expectASnapshot checks that a worker goes on from a snapshot, and not from one long ago.
func (w *worker) expectASnapshot(reached int) {
	w.Helper()
	expectASnapshot(w.T, *w.adopts().Adopted, reached)
}

func expectASnapshot(t *testing.T, step, reached int) {
	t.Helper()
	if step == 0 || step%snapshotEvery != 0 || reached-step >= 2*snapshotEvery {
		t.Errorf("training goes on from step %d after %d: expected a snapshot, of fewer than %d steps before",
			step, reached, 2*snapshotEvery)
	}
}

// adopts returns what a worker says when it goes on from a step that others trained.
func (w *worker) adopts() said {
	w.Helper()
	return w.await("a state", func(line said) bool { return line.Adopted != nil })
}

// untilHeld waits until the cluster holds for a reason that says something, and returns it.
func (c *cluster) untilHeld(says string) string {
	c.Helper()
	held := c.awaitEvent(events.ClusterHeld, func(event events.Event) bool {
		hold, err := events.Open[events.Hold](event)
		return err == nil && strings.Contains(hold.Reason, says)
	})
	hold, err := events.Open[events.Hold](held)
	if err != nil {
		c.Fatal(err)
	}
	return hold.Reason
}
