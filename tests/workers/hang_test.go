package workers

import (
	"testing"
	"time"
)

func TestTheOthersGoOnWithoutATrainerThatHangsWhichItsAgentStartsAgain(t *testing.T) {
	for where, setting := range map[string]string{
		"as it computes": "WORKER_HANGS_AT=10", "as it applies its sums": "WORKER_APPLIES_FOR_EVER_AT=9",
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			testHang(t, setting)
		})
	}
}

// testHang has a trainer make nine or ten steps, and hang.
func testHang(t *testing.T, setting string) {
	c := newCluster(t, 3, endless)
	c.settings = []string{"WORKER_STEP_SECONDS=0.1"} // it is for half a minute that the others wait for it
	first, second := c.start("n1"), c.start("n2")
	hangs := c.startWith("n3", []string{setting}, "--restarts", "1")
	for _, w := range []*worker{first, second} {
		w.untilWorld(3)
	}
	last := first.await("the step before", func(line said) bool { return line.Done == 10 })
	began := time.Now()
	first.await("a step with two", func(line said) bool { return line.World == 2 && line.Done > last.Done && line.GivenUp == "" })
	t.Logf("the others made step 11 %v after the last one of all", time.Since(began))
	again := hangs.await("its start again", func(line said) bool { return line.PID > 0 })
	t.Logf("it was killed and started again %v later", time.Since(began))
	if again.PID == hangs.pid {
		t.Errorf("the process %d that hung goes on", again.PID)
	}
	hangs.untilWorld(3)
}
