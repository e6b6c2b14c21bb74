package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/tests/simulation/loop"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// written returns what an undisturbed instance writes in the model while it starts and handles the nodes, in its order.
func (h *hub) written(nodes int) (points []loop.Point) {
	for node := range nodes {
		h.lose(fmt.Sprint("n", node))
	}
	running := h.start(&clerk{})
	for {
		switch running.Point() {
		case loop.TakeLease, loop.Publish:
			points = append(points, loop.Publish)
		case loop.Sign, loop.Remember:
			points = append(points, loop.Remember)
		case loop.Acknowledge:
			points = append(points, loop.Acknowledge)
		}
		if !h.step(running, stream.Answered) {
			return points
		}
	}
}

func TestTheLoopWritesWhatTheRealOneWritesInTheSameOrder(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	const cluster, nodes = "order", 3
	watcher := connect(t, ctx, server.URL(), cluster)
	if err := watcher.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	for node := range nodes {
		tell(t, ctx, watcher, cluster, fmt.Sprint("n", node))
	}
	expected := newHub(t, cluster, false).written(nodes)
	through := openDoor(t, server.URL(), 0, false, false, func() {})
	ended := run(ctx, connect(t, ctx, through.url(), cluster), &clerk{cluster: cluster})
	written := through.written(len(expected))
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(written, expected) {
		t.Errorf("the model writes\n%v\nthe service\n%v", expected, written)
	}
}

// An instance is paused at a write, long enough for another to take its place and to do its work. When it goes on, it
// ends and changes nothing.
func TestAPausedInstanceThatGoesOnEndsAsTheModelDoes(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	t.Run("at", func(t *testing.T) {
		for _, at := range []struct {
			point string
			write int
			after int // writes of the other until it has done its work
		}{
			{"fact", 3, writesOfStart + writesOfMessage},
			{"plan", 4, writesOfStart + writesOfMessage},
			{"memory", 7, writesOfStart + 1}, // an acknowledgement
		} {
			t.Run(at.point, func(t *testing.T) {
				t.Parallel()
				modelled := pausedModel(t, at.point, at.write)
				real := pausedReal(t, server.URL(), at.point, at.write, at.after)
				if modelled != real {
					t.Errorf("the model\n%s\nthe service\n%s", modelled, real)
				}
			})
		}
	})
}

func pausedModel(t *testing.T, cluster string, write int) string {
	h := newHub(t, cluster, false)
	h.lose("n0")
	machines := []*clerk{{}, {}}
	first := h.start(machines[0])
	h.stepTo(first, write)
	second := h.start(machines[1])
	for h.step(second, stream.Answered) {
	}
	remembered := 1 // as it signed
	for goesOn := true; goesOn; goesOn = h.step(first, stream.Answered) {
		if first.Point() == loop.Remember {
			remembered++
		}
	}
	h.lose(marker)
	for h.step(second, stream.Answered) {
	}
	return ending(first.Err(), second.Err(), remembered) + story(h.log(), machines)
}

func pausedReal(t *testing.T, url, cluster string, write, after int) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	watcher := connect(t, ctx, url, cluster)
	if err := watcher.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	tell(t, ctx, watcher, cluster, "n0")
	paused, resume := make(chan struct{}), make(chan struct{})
	through := openDoor(t, url, write, true, false, func() {})
	through.pause = func() { close(paused); <-resume }
	machines := []*clerk{{cluster: cluster}, {cluster: cluster}}
	first := run(ctx, connect(t, ctx, through.url(), cluster), machines[0])
	<-paused
	working, stop := context.WithCancel(ctx)
	other := openDoor(t, url, 0, false, false, func() {})
	second := run(working, connect(t, ctx, other.url(), cluster), machines[1])
	other.written(after)
	close(resume)
	err := <-first
	written := through.written(0)
	tell(t, ctx, watcher, cluster, marker)
	said := saidUntil(t, ctx, watcher, cluster)
	stop()
	remembered := slices.DeleteFunc(written, func(point loop.Point) bool { return point != loop.Remember })
	return ending(err, <-second, len(remembered)) + story(said, machines)
}

// ending tells how both ended, and how often the first tried to write its memory.
func ending(first, second error, remembered int) string {
	return fmt.Sprintf("the first is fenced: %v, after %d writes of its memory; the second ends with: %v\n",
		errors.Is(first, bus.ErrFenced), remembered, second)
}
