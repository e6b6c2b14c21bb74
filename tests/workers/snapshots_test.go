package workers

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
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
	bucket := toBucket(t.TempDir())
	c := newCluster(t, 3, 200)
	reached := killAll(c.startThree(bucket), 90)
	again := c.startThree(bucket)
	step := *again[0].adopts().Adopted
	if step%snapshotEvery != 0 || reached-step >= 2*snapshotEvery {
		t.Errorf("training goes on from step %d after %d: expected a snapshot, of fewer than %d steps before",
			step, reached, 2*snapshotEvery)
	}
	c.expectTheStateOfTrainingAlone(again...)
}

func TestAWholeClusterStartsAnewFromTheBucket(t *testing.T) {
	bucket := toBucket(t.TempDir())
	killAll(newCluster(t, 3, 200).startThree(bucket), 90)
	c := newCluster(t, 3, 200) // another server, and nothing in its log
	workers := c.startThree(bucket)
	if step := *workers[0].adopts().Adopted; step < 90-2*snapshotEvery {
		t.Errorf("training begins at step %d: expected that of a snapshot", step)
	}
	c.expectTheStateOfTrainingAlone(workers...)
}

func TestWithoutSnapshotsTheEndOfAllWorkersIsHeldAndWhatIsMissingIsNamed(t *testing.T) {
	c := newCluster(t, 3, 200)
	killAll(c.startThree(nil), 30)
	c.startThree(nil)
	if held := c.untilHeld("no snapshot"); !strings.Contains(held, "layer 0, layer 1") {
		t.Errorf("held: %s", held)
	}
}

func (c *cluster) startThree(settings []string) []*worker {
	c.Helper()
	var workers []*worker
	for _, node := range []string{"n1", "n2", "n3"} {
		workers = append(workers, c.startWith(node, settings))
	}
	return workers
}

// killAll kills workers and their agents, once so many steps are completed, and returns how many were.
func killAll(workers []*worker, steps int) int {
	reached := workers[0].await("steps", func(line said) bool { return line.Done >= steps }).Done
	for _, w := range workers {
		w.signal(w.agent.Process.Pid, syscall.SIGKILL)
		w.signal(w.pid, syscall.SIGKILL)
	}
	return reached
}

// adopts returns what a worker says when it goes on from a step that others trained.
func (w *worker) adopts() said {
	w.Helper()
	return w.await("a state", func(line said) bool { return line.Adopted != nil })
}

// untilHeld waits until the cluster holds for a reason that says something, and returns it.
func (c *cluster) untilHeld(says string) string {
	c.Helper()
	b, err := bus.Connect(c.Context(), bus.Config{URL: c.url, Name: "test", Cluster: "workers"})
	if err != nil {
		c.Fatal(err)
	}
	defer b.Close()
	reasons := make(chan string, 1<<10)
	hear := func(event events.Event) {
		if hold, err := events.Open[events.Hold](event); err == nil {
			reasons <- hold.Reason
		}
	}
	held := []string{events.EventSubject("workers", events.ClusterHeld, "*")}
	stop, err := b.Follow(c.Context(), events.EventStream, held, bus.All, hear)
	if err != nil {
		c.Fatal(err)
	}
	defer stop()
	for deadline := time.After(patience); ; {
		select {
		case reason := <-reasons:
			if strings.Contains(reason, says) {
				return reason
			}
		case <-deadline:
			c.Fatalf("no reason to hold says %q", says)
		}
	}
}
