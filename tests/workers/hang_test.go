package workers

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestTheOthersGoOnWithoutATrainerThatHangsWhichItsAgentStartsAgain(t *testing.T) {
	t.Parallel()
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
	ofIt := func(event events.Event) bool { return event.Subject == "n3" }
	lost, err := events.Open[events.NodeState](c.awaitEvent(events.NodeLost, ofIt))
	if err != nil || !strings.HasPrefix(lost.Reason, "its trainer hangs: it computes, and n") {
		t.Errorf("it is lost because %q, %v", lost.Reason, err)
	}
	t.Logf("the others made step 11 %v after the last one of all", time.Since(began))
	again := hangs.await("its start again", func(line said) bool { return line.PID > 0 })
	t.Logf("it was killed and started again %v later", time.Since(began))
	if again.PID == hangs.pid {
		t.Errorf("the process %d that hung goes on", again.PID)
	}
	hangs.untilWorld(3)
}

func TestATrainerThatHangsIsEndedThoughTheOthersHaveCompletedTheJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 40)
	c.settings = []string{"WORKER_STEP_SECONDS=0.1"}
	first, second := c.start("n1"), c.start("n2")
	hangs := c.startWith("n3", []string{"WORKER_HANGS_AT=10"}, "--restarts", "1")
	first.finish()
	second.finish()
	hangs.untilItsEnd()
	if err := hangs.agent.Wait(); err != nil {
		t.Errorf("its agent ended with %v", err)
	}
}
