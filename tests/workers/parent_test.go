package workers

import (
	"syscall"
	"testing"
	"time"
)

func TestATrainerThatIsStoppedWhileItWaitsForAnOrderJoinsAgainWithoutARestart(t *testing.T) {
	c := newCluster(t, 2, 100)
	stops := c.start("n1", "--restarts", "0")
	stops.signal(stops.pid, syscall.SIGSTOP) // there is no plan without another node
	time.Sleep(3 * time.Second)              // the agent gives it up after two; nothing tells the trainer, which is stopped
	stops.signal(stops.pid, syscall.SIGCONT)
	c.expectTheStateOfTrainingAlone(stops, c.start("n2"))
}
