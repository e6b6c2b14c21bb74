package workers

import (
	"math"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// newPerceptron starts a cluster whose workers train a perceptron with PyTorch, as a user's script does.
func newPerceptron(t *testing.T, startNodes, steps int, settings ...string) *cluster {
	needPyTorch(t)
	return perceptrons(t, startNodes, steps, settings...)
}

// perceptrons starts a cluster of a test whose turn it is.
func perceptrons(t *testing.T, startNodes, steps int, settings ...string) *cluster {
	c := newCluster(t, startNodes, steps)
	c.script = []string{pytorch, "torch_mlp.py"}
	c.settings = append(settings, "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "PYTHONDONTWRITEBYTECODE=1")
	return c
}

// toDisk has a worker write snapshots to a folder of its own.
func toDisk(folder string) []string {
	return []string{"REKNIT_SNAPSHOT_FOLDER=" + folder, "REKNIT_SNAPSHOT_DISK_EVERY=" + itoa(snapshotEvery)}
}

// toDiskIn has each worker write snapshots to a folder of its own in a folder.
func toDiskIn(folders string) func(node string) []string {
	return func(node string) []string { return toDisk(filepath.Join(folders, node)) }
}

// toS3 starts an S3 server, and has workers write snapshots to it.
func toS3(t *testing.T) []string {
	server := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithAutoBucket(true)).Server())
	t.Cleanup(server.Close)
	return []string{
		"REKNIT_SNAPSHOT_BUCKET=s3://snapshots?endpoint=" + server.URL + "&use_path_style=true&region=none",
		"REKNIT_SNAPSHOT_REMOTE_EVERY=" + itoa(snapshotEvery),
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
	}
}

func TestAllPyTorchTrainersAreKilledAtOnceAndGoOnFromTheirDisks(t *testing.T) {
	t.Parallel()
	c := newPerceptron(t, 2, 120)
	folders := t.TempDir()
	start := func() []*worker { return c.startTogether(toDiskIn(folders), "n1", "n2") }
	reached := killAll(start(), 50)
	before := c.plans()
	finish(start())
	plans := c.plans()
	expectASnapshot(t, int(plans[len(before)].ResumeStep), reached)
	c.expectTheLossesOfTrainingAlone(c.ledger.losses)
	if err := c.ledger.check(plans, 120); err != nil {
		t.Error(err)
	}
}

func TestAPyTorchJobThatIsStoppedGoesOnFromThatStepAndTrainsLonger(t *testing.T) {
	t.Parallel()
	c := newPerceptron(t, 2, 120)
	folders := t.TempDir()
	start := func(settings ...string) (workers []*worker) {
		for _, node := range []string{"n1", "n2"} {
			workers = append(workers, c.startWith(node, append(toDisk(filepath.Join(folders, node)), settings...)))
		}
		return workers
	}
	workers := start("WORKER_STEPS=100", "WORKER_STEP_SECONDS=0.1") // a stop takes a second, and more on a busy machine
	workers[0].await("steps", func(line said) bool { return line.Done >= 10 })
	c.reknit("stop")
	stopped, before := c.expectStopped(workers), c.plans()
	finish(start())
	if step := c.plans()[len(before)].ResumeStep; step != stopped.Step {
		t.Errorf("training goes on from step %d: expected %d, after which it was stopped", step, stopped.Step)
	}
	c.expectTheLossesOfTrainingAlone(c.ledger.losses)
	if err := c.ledger.check(c.plans(), 120); err != nil {
		t.Error(err)
	}
}

func TestAPyTorchJobGoesOnInAClusterThatStartsAnewFromS3(t *testing.T) {
	t.Parallel()
	store := toS3(t)
	start := func(c *cluster) []*worker { return c.startTogether(alike(store), "n1", "n2") }
	gone := newPerceptron(t, 2, 120)
	reached := killAll(start(gone), 50)
	first := gone.plans()
	c := perceptrons(t, 2, 120) // another server, other services, and nothing in the log
	finish(start(c))
	second := c.plans()
	expectASnapshot(t, int(second[0].ResumeStep), reached)
	for done, loss := range gone.ledger.losses {
		if _, again := c.ledger.losses[done]; !again {
			c.ledger.losses[done] = loss
		}
	}
	c.expectTheLossesOfTrainingAlone(c.ledger.losses)
	if err := c.ledger.checkAfter(&gone.ledger, first, second, 120); err != nil {
		t.Error(err)
	}
}

func TestASnapshotHasTheStatisticsOfItsStepThoughTheNextOneWasUnderWay(t *testing.T) {
	t.Parallel()
	c := newPerceptron(t, 1, 60, "WORKER_WIDTH=2048") // 48 MiB of state: the next step begins before it is copied
	folder := toDisk(t.TempDir())
	killAll([]*worker{c.startWith("n1", folder)}, 39) // the snapshot of step 20 is written by then
	c.expectTheEndOfTrainingAlone(c.startWith("n1", folder))
}

func finish(workers []*worker) {
	for _, w := range workers {
		w.finish()
	}
}

// farthest is how far losses may be apart: sums of floats depend on their order.
const farthest = 1e-4

// expectTheLossesOfTrainingAlone compares the loss of each step.
func (c *cluster) expectTheLossesOfTrainingAlone(losses map[int]float64) {
	c.Helper()
	for _, line := range c.alone(c.steps) {
		if line.Loss == nil {
			continue
		}
		loss, known := losses[line.Done]
		if !known || math.Abs(loss-*line.Loss) > farthest {
			c.Errorf("step %d has the loss %v (%t): expected %v, as training alone has", line.Done, loss, known, *line.Loss)
		}
	}
}
