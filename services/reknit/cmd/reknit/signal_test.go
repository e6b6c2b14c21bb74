package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// ends is set in the environment of a process that ends upon no first signal.
const ends = "TEST_WAITS_FOR_A_SECOND_SIGNAL"

func TestMain(m *testing.M) {
	if os.Getenv(ends) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := untilTold()
	defer stop()
	fmt.Println("waits")
	<-ctx.Done()
	time.Sleep(time.Minute)
}

// Ctrl-C twice in the terminal of reknit up did what one did.
func TestASecondSignalEndsACommandThatIsStillEnding(t *testing.T) {
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), ends+"=1")
	output, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	for began := time.Now(); ; {
		_ = process.Process.Signal(syscall.SIGINT) // it may have ended
		select {
		case <-ended:
			if took := time.Since(began); took > 30*time.Second || !process.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
				t.Errorf("it ended after %v, %v: expected that a signal ended it", took, process.ProcessState)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
