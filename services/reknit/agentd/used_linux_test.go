package agentd

import (
	"io"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/reknit/reknit/services/agent/rest"
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
			var before, after rest.Used
			var computes, writes bool
			var stopped int
			for look := range 150 { // the first after 0.2 s, for it begins; five more at least; and until all is there on a busy machine
				time.Sleep(200 * time.Millisecond)
				var isKnown bool
				if after, stopped, isKnown = usedBy(pid); !isKnown {
					t.Fatal("the kernel does not tell")
				}
				if look == 0 {
					before = after
				}
				computes, writes = after.Processor-before.Processor >= 2*tick, after.Writes > before.Writes
				lacks := does.computes && !computes || does.writes && !writes || does.stopped && stopped == 0
				if look >= 5 && !lacks {
					break
				}
			}
			if computes != does.computes || writes != does.writes || (stopped > 0) != does.stopped {
				t.Errorf("it used %+v, and later %+v; stopped is %d", before, after, stopped)
			}
		})
	}
}
