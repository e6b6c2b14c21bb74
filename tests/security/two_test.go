package security

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// two are nodes that train a half of a model each for as long as a test runs, and what is said meanwhile.
type two struct {
	*place
	ctx   context.Context
	heard chan events.Event // for which a test waits
	ended chan error

	mutex sync.Mutex
	made  map[string]uint64 // newest step of which a node has told
	said  map[events.Kind]int
}

// trainTwo has two nodes train, with settings beside the usual ones.
func (p *place) trainTwo(more map[string]string) *two {
	p.Helper()
	p.services()
	text := filepath.Join(p.TempDir(), "text")
	if err := os.WriteFile(text, []byte(prose), 0o600); err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.Context(), 5*time.Minute)
	p.Cleanup(cancel)
	w := &two{place: p, ctx: ctx, heard: make(chan events.Event, 1024), ended: make(chan error, 2), made: map[string]uint64{},
		said: map[events.Kind]int{}}
	if err := p.connect("negotiator").Provision(ctx); err != nil {
		p.Fatal(err)
	}
	var subjects []string
	for _, kind := range []events.Kind{events.PlanActivated, events.EventRefused, events.SnapshotCompleted, events.TrainingDigested,
		events.NegotiationOpened, events.StepBroken} {
		subjects = append(subjects, events.EventSubject(cluster, kind, "*"))
	}
	if _, err := p.connect("user").Follow(ctx, events.EventStream, subjects, bus.All, w.hear); err != nil {
		p.Fatal(err)
	}
	for _, name := range []string{"n1", "n2"} {
		p.train(ctx, name, text, more, w.ended)
	}
	return w
}

func (w *two) hear(event events.Event) {
	w.mutex.Lock()
	w.said[event.Kind]++
	if told, err := events.Open[events.Digests](event); event.Kind == events.TrainingDigested && err == nil {
		w.made[told.Node] = max(w.made[told.Node], told.Step)
	}
	w.mutex.Unlock()
	switch event.Kind {
	case events.PlanActivated, events.EventRefused, events.SnapshotCompleted:
		select {
		case w.heard <- event:
		case <-w.ctx.Done():
		}
	}
}

// await returns the next event of a kind.
func (w *two) await(kind events.Kind) events.Event {
	w.Helper()
	for {
		select {
		case event := <-w.heard:
			if event.Kind == kind {
				return event
			}
		case <-w.ctx.Done():
			w.Fatalf("no %s was said", kind)
		}
	}
}

// count is how often a kind was said. What was said before a step of which a node has told is counted.
func (w *two) count(kind events.Kind) int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.said[kind]
}

// steps returns the newest step of which both have told, and of which one has.
func (w *two) steps() (both, one uint64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	told := slices.Sorted(maps.Values(w.made))
	if len(told) == 2 {
		both = told[0]
	}
	if len(told) > 0 {
		one = told[len(told)-1]
	}
	return both, one
}

// trainOn waits until both have made a step, which shows that nothing kept anybody from it.
func (w *two) trainOn(step uint64) {
	w.Helper()
	for both, _ := w.steps(); both < step; both, _ = w.steps() {
		select {
		case err := <-w.ended:
			w.Fatalf("a trainer ended before step %d: %v", step, err)
		case <-w.ctx.Done():
			w.Fatalf("step %d is not made, and %d was", step, both)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// answers returns what has come by the time at which the nodes have trained on and kept a snapshot.
func (w *two) answers(asked *nats.Subscription) (all []*nats.Msg) {
	w.Helper()
	_, step := w.steps()
	w.trainOn(step + 300)
	w.await(events.SnapshotCompleted)
	for {
		answer, err := asked.NextMsg(time.Millisecond)
		if err != nil {
			return all
		}
		all = append(all, answer)
	}
}
