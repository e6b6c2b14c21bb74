package workers

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// plain is a cluster whose script knows nothing of Reknit.
type plain struct {
	*cluster
	dir string
}

func newPlain(t *testing.T, startNodes int) *plain {
	p := &plain{newCluster(t, startNodes, 0), t.TempDir()}
	p.script = []string{"python3", "plain.py", p.dir}
	return p
}

func (p *plain) join(node string, arguments ...string) *worker {
	p.Helper()
	return p.launch(node, p.agent(node, nil, append(arguments, "--unchanged")...))
}

// together waits until each worker counts in a world of all of them, with a rank of its own and from where the count was.
// It returns who has which rank.
func (p *plain) together(workers ...*worker) (ranks map[int]string) {
	p.Helper()
	began := time.Now()
	ranks = map[int]string{}
	for _, w := range workers {
		before := w.done
		line := w.await("a count with all", func(line said) bool { return line.World == len(workers) })
		if line.Done < before {
			p.Errorf("%s counts %d after %d: expected that it goes on from the checkpoint", w.node, line.Done, before)
		}
		w.pid = line.PID
		ranks[line.Rank] = w.node
	}
	p.Logf("a count of %d together after %v, by rank: %v", len(workers), time.Since(began), ranks)
	for rank := range workers {
		if ranks[rank] == "" {
			p.Errorf("nobody has rank %d of %d: %v", rank, len(workers), ranks)
		}
	}
	return ranks
}

// enough has the scripts end.
func (p *plain) enough() {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "enough"), nil, 0o600); err != nil {
		p.Fatal(err)
	}
}

// finish has the scripts end, and expects that all agents end well.
func (p *plain) finish(workers ...*worker) {
	p.Helper()
	p.enough()
	for _, w := range workers {
		w.untilItsEnd()
		if err := w.agent.Wait(); err != nil {
			p.Errorf("%s ended with %v", w.node, err)
		}
	}
}

// lose kills an agent, and its script with it.
func (p *plain) lose(w *worker) {
	p.Helper()
	w.signal(w.agent.Process.Pid, syscall.SIGKILL)
	w.untilItsEnd()
}

func TestAScriptThatIsNotChangedHasItsRankInEachPlanAndGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 3)
	first, second, third := p.join("n1"), p.join("n2"), p.join("n3")
	p.together(first, second, third)
	p.lose(first)
	p.together(second, third)
	fourth := p.join("n4")
	p.together(second, third, fourth)
	third.signal(third.agent.Process.Pid, syscall.SIGTERM)
	p.together(second, fourth)
	if err := third.agent.Wait(); err != nil {
		t.Errorf("who left ended with %v", err)
	}
	p.finish(second, fourth)
}

func TestAScriptThatIsKilledIsStartedAgainAtAllNodesWithTheSameRanks(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 2)
	first, second := p.join("n1"), p.join("n2")
	before := p.together(first, second)
	second.signal(second.pid, syscall.SIGKILL)
	for _, w := range []*worker{first, second} {
		w.pid = w.await("another process", func(line said) bool { return line.PID != w.pid }).PID
	}
	if after := p.together(first, second); !maps.Equal(after, before) {
		t.Errorf("by rank they are %v after %v: expected the same", after, before)
	}
	p.finish(first, second)
}

func TestAScriptThatAlwaysFailsEndsItsAgentsWithItsStatus(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 2)
	p.script = []string{"sh", "-c", `echo "{\"pid\": $$}"; exit 3`}
	for _, w := range []*worker{p.join("n1", "--restarts", "1"), p.join("n2", "--restarts", "1")} {
		starts := 0
		for line := range w.lines {
			if line.PID > 0 {
				starts++
			}
		}
		if err := w.agent.Wait(); w.agent.ProcessState.ExitCode() != 3 {
			t.Errorf("%s ended with %v: expected the status of the script, 3", w.node, err)
		}
		if starts < 1 || starts > 5 { // two failures of its own, and two of the other's and its loss, which do not count
			t.Errorf("%s started the script %d times: expected five times at most", w.node, starts)
		}
	}
}

func TestScriptsOfWhichAllAgentsWereKilledGoOnWhereSomeAreStartedAgain(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 2)
	first, second := p.join("n1"), p.join("n2")
	p.together(first, second)
	for _, w := range []*worker{first, second} {
		w.signal(w.agent.Process.Pid, syscall.SIGKILL)
	}
	first.untilItsEnd()
	second.untilItsEnd()
	first, second = p.join("n1"), p.join("n2")
	p.together(first, second)
	p.finish(first, second)
	p.join("n1").untilItsEnd() // the job is complete: another one begins with another cluster
	p.script = []string{"python3", "-u", "other.py"}
	said, err := p.agent("n1", nil, "--unchanged").CombinedOutput()
	if err == nil || !strings.Contains(string(said), "this cluster's job is complete") {
		t.Errorf("another script ends with %v, and says %s", err, said)
	}
}

// The stop was refused, for the state would be lost, which is in their own checkpoint. One signal to each did the same.
func TestScriptsAreStoppedTogetherAndGoOnFromTheirCheckpoint(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 2)
	first, second := p.join("n1"), p.join("n2")
	p.together(first, second)
	p.reknit("stop")
	if stopped := p.expectStopped([]*worker{first, second}); stopped.Tier != "" {
		t.Errorf("the stop tells of a snapshot: %+v", stopped)
	}
	says, err := p.run("status")
	if !strings.Contains(says, "go on from their own checkpoints") || strings.Contains(says, "gone") {
		t.Errorf("%v, %s", err, says)
	}
	done := max(first.done, second.done)
	first, second = p.join("n1"), p.join("n2")
	first.done, second.done = done-1, done-1 // each was killed before it said its last count, or after
	p.together(first, second)
	for _, w := range []*worker{first, second} {
		w.signal(w.agent.Process.Pid, syscall.SIGTERM)
	}
	p.expectStopped([]*worker{first, second})
	alone := p.join("n2")
	p.together(alone, p.join("n1"))
}

// All who had a place in the last plan waited for ever, and a script that begins with its own checkpoint lost nothing.
func TestScriptsWhoseJobIsCompleteBeginAgainByTheirNamesOnceAUserAskedForThat(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 2)
	first, second := p.join("n1"), p.join("n2")
	p.together(first, second)
	p.finish(first, second)
	if err := os.Remove(filepath.Join(p.dir, "enough")); err != nil {
		t.Fatal(err)
	}
	if says, err := p.run("cluster", "reset", "--yes", "--from-snapshot"); err == nil || !strings.Contains(says, "--unchanged") {
		t.Errorf("a reset from a snapshot ends with %v, and says %s", err, says)
	}
	p.reknit("cluster", "reset", "--yes")
	first, second = p.join("n1"), p.join("n2")
	p.together(first, second)
	p.finish(first, second)
}

func TestAScriptGoesOnAloneThoughTheLastPlanOfAllThatWereKilledDidWithoutIt(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 2)
	first, second := p.join("n1"), p.join("n2")
	p.together(first, second)
	p.lose(first)
	p.together(second)
	p.lose(second)
	again := p.join("n1")
	p.together(again)
	p.finish(again)
}

func TestScriptsThatEndWhileNATSIsAwayEndTheirAgentsOnceItIsBack(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 2)
	first, second := p.join("n1"), p.join("n2")
	p.together(first, second)
	p.server.Shutdown()
	p.enough()
	for _, w := range []*worker{first, second} {
		for deadline := time.Now().Add(patience); syscall.Kill(w.pid, 0) == nil; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the script of %s runs on", w.node)
			}
		}
	}
	p.restartNATS()
	p.finish(first, second)
}

func TestThePortOfRankZeroIsToldAgainWhereNATSHasForgottenIt(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 2)
	first, second := p.join("n1"), p.join("n2")
	p.together(first, second)
	p.restartNATS()
	p.awaitValue()
	p.finish(first, second)
}

func TestAScriptThatIgnoresItsEndIsKilledByASecondSignal(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 1)
	p.script = []string{"python3", "-u", "-c", `import json, os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print(json.dumps({"ended": "asked"})))
print(json.dumps({"world": 1, "pid": os.getpid()}))
while True: time.sleep(1)`}
	errors := p.hearErrors()
	w := p.join("n1")
	w.await("its start", func(line said) bool { return line.World == 1 })
	agent := w.agent.Process.Pid
	w.signal(agent, syscall.SIGTERM)
	w.await("that it was asked", func(line said) bool { return line.Ended == "asked" })
	w.signal(agent, syscall.SIGTERM)
	w.untilItsEnd()
	if said := errors(); strings.Contains(said, "has not ended upon SIGTERM") {
		t.Errorf("it was killed after the grace of the first signal, and not by the second: %s", said)
	}
}

// awaitValue waits for one that is told where scripts find together.
func (p *plain) awaitValue() {
	p.Helper()
	b, err := bus.Connect(p.Context(), bus.Config{URL: p.url, Name: "test", Cluster: "workers"})
	if err != nil {
		p.Fatal(err)
	}
	defer b.Close()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if bucket, err := b.JetStream().KeyValue(p.Context(), b.Lane(events.RendezvousBucket)); err == nil {
			if keys, err := bucket.Keys(p.Context()); err == nil && len(keys) > 0 {
				return
			}
		}
	}
	p.Fatalf("nothing is told within %v", patience)
}

func TestWhoseScriptIsNotChangedHasItsSiteAndItsPolicyAllTheSame(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 1)
	here := p.launch("n1", p.agent("n1", []string{"REKNIT_SITE=here", "REKNIT_CONSENT_ALLOW=here"}, "--unchanged"))
	p.together(here)
	said, errors, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer errors.Close()
	refused := p.agent("n2", []string{"REKNIT_SITE=there"}, "--unchanged")
	p.errors = errors
	there := p.launch("n2", refused)
	p.errors = nil
	p.hear(said, "asks again in 1s: not accepted: n1 does not consent", "asks again in 2s: not accepted: n1 does not consent")
	there.signal(there.agent.Process.Pid, syscall.SIGTERM)
	there.untilItsEnd()
	near := p.launch("n3", p.agent("n3", []string{"REKNIT_SITE=here"}, "--unchanged"))
	p.together(here, near)
	p.finish(here, near)
}

func TestWhoRunsAnotherScriptIsNotTakenIntoTheWorldAndIsToldWhich(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 1)
	first := p.join("n1")
	p.together(first)
	other := filepath.Join(t.TempDir(), "other.py")
	if err := os.WriteFile(other, []byte("raise SystemExit"), 0o600); err != nil {
		t.Fatal(err)
	}
	same := p.script
	p.script = []string{"python3", "-u", other}
	agent := p.agent("n2", nil, "--unchanged")
	said, err := agent.CombinedOutput()
	if err == nil || !strings.Contains(string(said), `the cluster trains another script than "other.py"`) {
		t.Errorf("it ended with %v and says %s", err, said)
	}
	p.script = same
	second := p.join("n2")
	p.together(first, second)
	p.finish(first, second)
}

func TestAScriptThatJoinsIsToldNotToBeStartedAsOneThatDoesNot(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 1)
	p.script = []string{"python3", "worker.py"}
	said, err := p.agent("n1", nil, "--unchanged", "--restarts", "0").CombinedOutput()
	if err == nil || !strings.Contains(string(said), "leave the flag out") {
		t.Errorf("it ended with %v and says %s", err, said)
	}
}

// Its agent's heartbeats came, and nobody said a word of it for ever. Then both were named, and no process.
func TestAScriptThatIsStoppedIsNamedWithItsProcessAndNotKilled(t *testing.T) {
	t.Parallel()
	p := newPlain(t, 2)
	first, second := p.join("n1"), p.join("n2")
	p.together(first, second)
	first.signal(first.pid, syscall.SIGSTOP) // and the other waits for it
	for _, node := range []string{"n1", "n2"} {
		ofIt := func(event events.Event) bool { return event.Subject == node }
		delay, err := events.Open[events.StepDelay](p.awaitEvent(events.StepDelayed, ofIt))
		if err != nil || delay.By != node || node == "n2" && delay.WaitedSeconds < 60 {
			t.Errorf("of %s is said %+v, %v", node, delay, err)
		}
	}
	says, err := p.run("status")
	names := fmt.Sprintf("the script of n1 (pid %d) is stopped, by SIGSTOP or a debugger, for ", first.pid)
	if err == nil || !strings.Contains(says, names) {
		t.Errorf("status ends with %v, and says %s", err, says)
	}
	first.signal(first.pid, syscall.SIGCONT)
	p.together(first, second)
	p.finish(first, second)
}
