package workers

import (
	"syscall"
	"testing"
)

func TestTheOthersGoOnWhenATrainerIsKilledAndANewOneTakesTheStateFromThem(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, endless)
	once := []string{"--restarts", "0"}
	first, second, third := c.start("n1", once...), c.start("n2", once...), c.start("n3", once...)
	for _, w := range []*worker{first, second, third} {
		w.untilWorld(3)
	}
	second.signal(second.pid, syscall.SIGKILL)
	for _, w := range []*worker{first, third} {
		t.Logf("%s: a step with two after %v", w.node, w.untilWorld(2))
	}
	fourth := c.start("n4", once...)
	took := fourth.await("the state", func(line said) bool { return line.Adopted != nil })
	if len(took.Took) != 2 || *took.Adopted == 0 {
		t.Errorf("expected two units of a step that the others completed, got %+v", took)
	}
	c.expectTheStateOfTrainingAlone(first, third, fourth)
}

func TestWhateverBecomesOfTheOthersTheStateIsThatOfTrainingAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, endless)
	stays := c.startWith("n1", []string{"WORKER_BREAKS_AT=20"})
	leaves, stops, orphan := c.start("n2"), c.start("n3"), c.start("n4")
	stays.await("the step that breaks", func(line said) bool { return line.GivenUp != "" && line.World == 4 })
	made := func(line said) bool { return line.Done > 20 && line.World == 4 && line.GivenUp == "" }
	for _, w := range []*worker{stays, leaves, stops, orphan} { // not all need have begun the step that broke
		w.await("that step", made)
	}

	leaves.signal(leaves.agent.Process.Pid, syscall.SIGTERM)
	if err := leaves.agent.Wait(); err != nil {
		t.Errorf("who left ended with %v", err)
	}
	t.Logf("after a leave: a step with three after %v", stays.untilWorld(3))

	stops.signal(stops.pid, syscall.SIGSTOP)
	t.Logf("after SIGSTOP: a step with two after %v", stays.untilWorld(2))

	orphan.signal(orphan.agent.Process.Pid, syscall.SIGKILL)
	t.Logf("after SIGKILL of an agent: a step alone after %v", stays.untilWorld(1))
	orphan.untilItsEnd()

	stops.signal(stops.pid, syscall.SIGKILL) // its agent starts it again, and it takes the state
	t.Logf("after a restart: a step with two after %v", stays.untilWorld(2))
	c.expectTheStateOfTrainingAlone(stays, stops)
}

func TestATrainerThatDriftsIsFoundWhileTrainingGoesOnAndTakesTheStateOfTheOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, endless)
	drifts := c.startWith("n1", []string{"WORKER_DRIFTS_AT=30"})
	others := []*worker{c.start("n2"), c.start("n3")}
	took := drifts.await("the state", func(line said) bool { return len(line.Took) == 2 })
	t.Logf("it goes on from step %d", *took.Adopted)
	c.expectTheStateOfTrainingAlone(append(others, drifts)...)
}

// endless is more steps than any test waits for.
const endless = 100000

// expectTheStateOfTrainingAlone waits for a step of each worker beyond those that were made so far.
func (c *cluster) expectTheStateOfTrainingAlone(workers ...*worker) {
	c.Helper()
	made := 0
	for _, w := range workers {
		made = max(made, w.done)
	}
	digests, steps := map[*worker]said{}, 0
	for _, w := range workers {
		digests[w] = w.await("another step", func(line said) bool { return line.Done > made })
		steps = max(steps, digests[w].Done)
	}
	alone := map[int]string{}
	for _, line := range c.alone(steps) {
		alone[line.Done] = line.Digest
	}
	for w, line := range digests {
		if line.Digest == "" || line.Digest != alone[line.Done] {
			c.Errorf("%s has %q after %d steps: expected %q, as training alone has", w.node, line.Digest, line.Done, alone[line.Done])
		}
	}
}

// expectTheEndOfTrainingAlone waits for workers' last step.
func (c *cluster) expectTheEndOfTrainingAlone(workers ...*worker) {
	c.Helper()
	said := c.alone(c.steps)
	alone := said[len(said)-1].Digest
	for _, w := range workers {
		if digest := w.finish(); digest != alone {
			c.Errorf("%s ended with %s: expected %s, as training alone does", w.node, digest, alone)
		}
	}
}
