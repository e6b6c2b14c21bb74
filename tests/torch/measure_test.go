package torch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// line is what a training script prints at a second.
func line(number uint64, under uint64, second float64) string {
	return fmt.Sprintf(`{"step": %d, "loss": 2.5, "world": 2, "under": %d, "time": %f}`, number, under, second)
}

// say has a worker print lines, in pieces of an awkward size.
func say(t *testing.T, course *Course, worker string, lines ...string) {
	t.Helper()
	listener := &listener{worker: worker, course: course, log: io.Discard}
	output := []byte(strings.Join(lines, "\n") + "\n")
	for piece := range slices.Chunk(output, 7) {
		if _, err := listener.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAChangeCostsTheLongestWaitOfThoseWhoTrainOn(t *testing.T) {
	course := newCourse()
	now := float64(time.Now().UnixMicro()) / 1e6
	say(t, course, "w1", line(1, 1, now-3), line(2, 1, now-2), line(3, 1, now-1))
	say(t, course, "w2", line(1, 1, now-3), line(2, 1, now-2), line(3, 1, now-1))
	healing, err := watch{course, []string{"w1", "w2"}, []string{"w3"}, anew}.cost(t.Context(), time.Minute, func() error {
		say(t, course, "w1", line(4, 1, now+1), line(5, 2, now+3))
		say(t, course, "w2", line(4, 2, now+5))
		say(t, course, "w3", line(5, 2, now+9))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if near(healing.Usual, 1) && near(healing.Stall, 5) && near(healing.Next, 9) && healing.Repeated == 0 {
		return // w2 stood for 6 s between two steps, and a step takes one; w3 came last
	}
	t.Errorf("%+v: expected a usual step of 1 s, a stall of 5 s, and 9 s to the last worker's step", healing)
}

func TestWhomAPlanLeavesOutIsNotWaitedFor(t *testing.T) {
	course := newCourse()
	now := float64(time.Now().UnixMicro()) / 1e6
	w := watch{course, []string{"w1", "w2", "w3"}, nil, anew}
	healing, err := w.cost(t.Context(), time.Minute, func() error {
		say(t, course, "w1", line(5, 2, now+3))
		say(t, course, "w2", line(5, 2, now+4)) // in a world of two
		return nil
	})
	if err != nil || !near(healing.Next, 4) {
		t.Errorf("%+v, %v: expected 4 s to the step of both", healing, err)
	}
	w.standing, w.joining = []string{"w1", "w2"}, []string{"w3"}
	if _, err := w.cost(t.Context(), time.Millisecond, func() error { return nil }); err == nil {
		t.Error("who joins is waited for")
	}
}

func near(got, expected float64) bool { return got > expected-0.1 && got < expected+0.1 }

func TestStepsThatAreTrainedAgainAreCounted(t *testing.T) {
	course := newCourse()
	now := float64(time.Now().UnixMicro()) / 1e6
	say(t, course, "w1", line(38, 700, now-2), line(39, 700, now-1))
	healing, err := watch{course, []string{"w1"}, nil, anew}.cost(t.Context(), time.Minute, func() error {
		say(t, course, "w1", line(21, 701, now+7))
		return nil
	})
	if err != nil || healing.Repeated != 19 {
		t.Errorf("%+v, %v: expected 19 steps again, 21 to 39", healing, err)
	}
}

func TestWhoWaitsForAStepIsNotKeptLongerThanTheLimit(t *testing.T) {
	course := newCourse()
	say(t, course, "w1", line(1, 1, 1))
	_, err := watch{course, []string{"w1"}, nil, anew}.cost(t.Context(), time.Millisecond, func() error { return nil })
	if err == nil || !strings.Contains(err.Error(), "expected within 1ms") {
		t.Errorf("expected an error that names the limit, got %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = watch{course, []string{"w1"}, nil, anew}.cost(ended, time.Hour, func() error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("expected %v, got %v", context.Canceled, err)
	}
}

func TestLossesAreThoseOfAllStepsAndOneEach(t *testing.T) {
	whole := []Step{{Number: 1, Loss: 5}, {Number: 1, Loss: 5}, {Number: 2, Loss: 4}}
	if losses, err := Losses(whole); err != nil || len(losses) != 2 || losses[1] != 4 {
		t.Errorf("got %v, %v", losses, err)
	}
	// All scripts of a soak were killed behind step 57,569, before one of them told of it.
	untold := []Step{{Number: 1, Loss: 5}, {Number: 3, Loss: 3, State: []float64{3, 0.5}}}
	if losses, err := Losses(untold); err != nil || !math.IsNaN(losses[1]) || CompareLosses(losses, []float64{5, 4, 3}) != nil {
		t.Errorf("got %v, %v", losses, err)
	}
	for expected, steps := range map[string][]Step{
		"expected some":                  nil,
		"step 2: expected somebody to":   {{Number: 1, Loss: 5}, {Number: 3, Loss: 3, State: []float64{2, 0.5}}},
		"step 2: expected somebody":      {{Number: 1, Loss: 5}, {Number: 3, Loss: 3}},
		"step 1: expected one loss, got": {{Number: 1, Loss: 5}, {Number: 1, Loss: 6}},
	} {
		if _, err := Losses(steps); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%v: expected an error with %q, got %v", steps, expected, err)
		}
	}
}
