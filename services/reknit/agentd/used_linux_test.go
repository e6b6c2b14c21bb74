package agentd

import (
	"io"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Each is one that lives, and says nothing to its agent.
func TestWhatAScriptUsesIsSeenWhereItComputesOrWritesAndNowhereElse(t *testing.T) {
	for script, does := range map[string]struct{ computes, writes, stopped bool }{
		"sleep 1000; :":                               {false, false, false},
		"while :; do :; done":                         {true, false, false},
		"while sleep 0.01; do echo; done":             {true, true, false},
		"setsid sh -c 'while :; do :; done'; :":       {true, false, false}, // of another group, as torchrun starts its workers
		"sleep 1000 & kill -STOP $$; sleep 1000; :":   {false, false, true},
		"(while :; do :; done) & kill -STOP $!; wait": {false, false, true},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			command := exec.Command("sh", "-c", script)
			command.Stdout, command.SysProcAttr = io.Discard, attributes()
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			pid := command.Process.Pid
			t.Cleanup(func() {
				for _, one := range processes() {
					if one.parent == pid {
						_ = syscall.Kill(-one.group, syscall.SIGKILL)
					}
				}
				_ = syscall.Kill(-pid, syscall.SIGKILL)
				_ = command.Wait()
			})
			time.Sleep(200 * time.Millisecond) // it begins
			before, _, isKnown := usedBy(pid)
			time.Sleep(time.Second)
			after, stopped, isKnownStill := usedBy(pid)
			if !isKnown || !isKnownStill {
				t.Fatal("the kernel does not tell")
			}
			computes, writes := after.Processor-before.Processor >= 2*tick, after.Writes > before.Writes
			if computes != does.computes || writes != does.writes || (stopped > 0) != does.stopped {
				t.Errorf("it used %+v, and a second later %+v; stopped is %d", before, after, stopped)
			}
		})
	}
}
