package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/shared/telemetry"
	"github.com/reknit/reknit/tests/simulation/loop"
	"github.com/reknit/reknit/tests/simulation/stream"
)

func TestMain(m *testing.M) {
	telemetry.Level.Set(slog.LevelError + 1) // faults are provoked here
	if _, err := telemetry.Setup(context.Background(), "test"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// fault is what befalls a service at one of its writes: a publish, its memory, an acknowledgement.
type fault struct {
	write   int
	reaches bool // the hub, before the connection is cut
	crashes bool // and an instance is started anew; else the service goes on
}

func (f fault) String() string {
	return fmt.Sprintf("write %d, reaches the hub %v, crashes %v", f.write, f.reaches, f.crashes)
}

// The writes of an instance: its lease and its signature; for each message three events and the acknowledgement; and the
// memory, when there was nothing else to do for a while.
const writesOfStart, writesOfMessage, writesOfMemory = 2, 4, 1

// marker is lost last: what is said of it comes behind all that the fault brings about.
const marker = "marker"

// The connection of the real service and of the model is cut at the same write, for each of the first writes of a
// service that has two messages to handle.
func TestTheLoopSaysAndHearsWhatTheRealOneDoes(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	t.Run("at", func(t *testing.T) {
		for write := 1; write <= writesOfStart+writesOfMessage*2+writesOfMemory; write++ {
			kinds := []fault{{write, false, true}, {write, true, true}}
			if write <= writesOfStart+writesOfMessage {
				kinds = append(kinds, fault{write, false, false}, fault{write, true, false})
			}
			for _, kind := range kinds {
				t.Run(kind.String(), func(t *testing.T) {
					t.Parallel()
					cluster := fmt.Sprintf("%d-%v-%v", kind.write, kind.reaches, kind.crashes)
					modelled, real := modelStory(t, cluster, kind), realStory(t, server.URL(), cluster, kind)
					if modelled != real {
						t.Errorf("the model\n%s\nthe service\n%s", modelled, real)
					}
				})
			}
		}
	})
}

// story tells what was said, and what the machines heard and remember.
func story(said []events.Event, machines []*clerk) string {
	var text strings.Builder
	for _, event := range said {
		fmt.Fprintf(&text, "%s %s %s\n", event.Kind, event.Subject, event.Data)
	}
	for _, machine := range machines {
		fmt.Fprintf(&text, "heard %v, counts %d\n", machine.heard, machine.Count)
	}
	return text.String()
}

func modelStory(t *testing.T, cluster string, f fault) string {
	h := newHub(t, cluster, false)
	h.lose("n0")
	h.lose("n1")
	machines := []*clerk{{}}
	running := h.start(machines[0])
	h.stepTo(running, f.write)
	acknowledges := running.Point() == loop.Acknowledge
	switch {
	case f.reaches:
		h.step(running, stream.Unheard)
	case !f.crashes || acknowledges:
		h.step(running, stream.Lost)
	}
	if f.crashes {
		if acknowledges { // no answer is waited for, and the next message is here already
			running.Take(h.now, stream.Answered)
		}
		machines = append(machines, &clerk{})
		running = h.start(machines[1])
	}
	h.lose(marker)
	for h.step(running, stream.Answered) {
	}
	if running.Err() != nil {
		t.Fatal(running.Err())
	}
	return story(h.log(), machines)
}

// stepTo steps an instance to a write, counted from 1.
func (h *hub) stepTo(running *loop.Service, write int) {
	writing := []loop.Point{loop.TakeLease, loop.Sign, loop.Publish, loop.Remember, loop.Acknowledge}
	for writes := 0; ; h.step(running, stream.Answered) {
		if slices.Contains(writing, running.Point()) {
			writes++
		}
		if writes == write {
			return
		}
	}
}

func realStory(t *testing.T, url, cluster string, f fault) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	watcher := connect(t, ctx, url, cluster)
	if err := watcher.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	tell(t, ctx, watcher, cluster, "n0")
	tell(t, ctx, watcher, cluster, "n1")
	first, crash := context.WithCancel(ctx)
	cut := make(chan struct{})
	through := openDoor(t, url, f.write, f.reaches, f.crashes, func() {
		if f.crashes {
			crash()
		}
		close(cut)
	})
	machines := []*clerk{{cluster: cluster}}
	ended := run(first, connect(t, ctx, through.url(), cluster), machines[0])
	<-cut
	stop := crash
	if f.crashes {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		machines = append(machines, &clerk{cluster: cluster})
		var second context.Context
		second, stop = context.WithCancel(ctx)
		ended = run(second, connect(t, ctx, url, cluster), machines[1])
	}
	tell(t, ctx, watcher, cluster, marker)
	said := saidUntil(t, ctx, watcher, cluster)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return story(said, machines)
}

// tell says that a node is lost.
func tell(t *testing.T, ctx context.Context, b *bus.Bus, cluster, node string) {
	if _, err := b.Publish(ctx, loss(time.Now(), cluster, node)); err != nil {
		t.Fatal(err)
	}
}

// saidUntil returns what the machine said, each stream in its order, once it said what the marker brings about.
func saidUntil(t *testing.T, ctx context.Context, watcher *bus.Bus, cluster string) []events.Event {
	isMarkers := func(event events.Event) bool { return strings.Contains(string(event.Data), `"reason":"`+marker) }
	said := follow(t, ctx, watcher, events.EventStream, "reknit.event."+cluster+".>", isMarkers)
	said = slices.DeleteFunc(said, func(event events.Event) bool {
		return event.Kind == events.NodeLost || event.Kind == events.LeaseTaken
	})
	plans := fmt.Sprint(len(said) / 2) // a plan for each two events
	return append(said, follow(t, ctx, watcher, events.PlanStream, events.PlanSubject(cluster, "*"),
		func(event events.Event) bool { return event.Subject == plans })...)
}

func connect(t *testing.T, ctx context.Context, url, cluster string) *bus.Bus {
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: "test", Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Conn().Close)
	return b
}

func run(ctx context.Context, b *bus.Bus, machine *clerk) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, service.Options{Name: "negotiator", Bus: b, Machine: machine}) }()
	return ended
}

// follow returns what a stream holds on a subject, up to the event that is the last.
func follow(
	t *testing.T, ctx context.Context, b *bus.Bus, from events.Stream, subject string, last func(events.Event) bool,
) (heard []events.Event) {
	all := make(chan events.Event, 64)
	stop, err := b.Follow(ctx, from, []string{subject}, bus.All, func(event events.Event) { all <- event })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for {
		select {
		case event := <-all:
			if heard = append(heard, event); last(event) {
				return heard
			}
		case <-ctx.Done():
			t.Fatalf("the last event never came, heard %d", len(heard))
		}
	}
}
