package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// callerKey is where a request's context has the id of the process that calls; zero where it is not known.
type callerKey struct{}

func callerOf(ctx context.Context) int {
	pid, _ := ctx.Value(callerKey{}).(int)
	return pid
}

const (
	lookEvery   = 500 * time.Millisecond // at whether a process still runs
	mostStopped = 2 * time.Second        // by a signal or a debugger; then the others go on without it
)

// attend ends a trainer whose process is stopped, or has ended though somebody holds its session open, a child of its
// say. The session's end must do if the system does not tell of processes.
func (t *trainer) attend(pid int) {
	if pid == 0 || processState(os.Getpid()) == 0 {
		return
	}
	var stopped time.Duration
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for {
		select {
		case <-t.ended.Done():
			return
		case <-ticks.C:
		}
		switch processState(pid) {
		case 0, 'Z', 'X':
			t.end(exit{how: "its process ended", code: -1})
		case 'T', 't':
			if stopped += lookEvery; stopped >= mostStopped {
				t.end(exit{how: "its process is stopped, by SIGSTOP or a debugger", code: -1, stood: stopped})
			}
		default:
			stopped = 0
		}
	}
}

// abandoned reports whether the process that joined has ended before anybody opened the session.
func (t *trainer) abandoned() bool {
	select {
	case <-t.heard:
		return false
	default:
	}
	switch processState(t.caller) {
	case 0, 'Z', 'X':
		return t.caller != 0
	}
	return false
}

// processState returns the letter that Linux has for what a process does; zero where there is none.
func processState(pid int) byte {
	state, _ := processStat(pid)
	return state
}

const startField = 19 // of a process, behind its state: when it began

// processStat returns that letter and when the process began, by which it is told from another that has its number later.
func processStat(pid int) (state byte, began string) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // before it is a name, which may contain anything
	if err != nil || len(fields) <= startField {
		return 0, ""
	}
	return fields[0][0], fields[startField]
}
