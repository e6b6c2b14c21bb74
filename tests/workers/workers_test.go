package workers

import (
	"syscall"
	"testing"
	"time"
)

func TestTheOthersGoOnWhenATrainerIsKilledAndANewOneTakesTheStateFromThem(t *testing.T) {
	c := newCluster(t, "3", 300)
	first, second, third := c.start("n1", "--restarts", "0"), c.start("n2", "--restarts", "0"), c.start("n3", "--restarts", "0")
	all := func(line said) bool { return line.Done >= 20 && line.World == 3 }
	for _, w := range []*worker{first, second, third} {
		w.await("a step with all three", all)
	}
	killed := time.Now()
	if err := syscall.Kill(second.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*worker{first, third} {
		w.await("a step with two", func(line said) bool { return line.World == 2 && line.GivenUp == "" })
	}
	t.Logf("from the kill to a step of both others: %v", time.Since(killed))

	fourth := c.start("n4")
	if took := fourth.await("the state", func(line said) bool { return line.Adopted != nil }); len(took.Took) != 2 || *took.Adopted == 0 {
		t.Errorf("expected two units of a step that the others completed, got %+v", took)
	}
	alone := c.alone()
	for _, w := range []*worker{first, third, fourth} {
		if digest := w.finish(); digest != alone {
			t.Errorf("%s ended with %s: expected %s, as training alone does", w.node, digest, alone)
		}
	}
}
