package up

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/internal/scene"
	"github.com/reknit/reknit/shared/bus"
)

func TestWhoLooksAtTheTerminalOfUpIsToldWhyTheClusterHoldsAndWhenItHoldsNoMore(t *testing.T) {
	b, url := scene.Begin(t, "c")
	said := make(chan string, 16)
	tellHolds(t.Context(), bus.Config{URL: url, Name: "up", Cluster: "c", Command: true}, func(text string) { said <- text })
	count := 0
	say := func(source string, kind events.Kind, subject string, payload events.Payload) {
		t.Helper()
		count++
		event := events.Speaker{Source: source, Cluster: "c"}.First(time.Now(), fmt.Sprint(count), kind, subject, payload)
		if _, err := b.Publish(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	hold := func(reason string) { say("/negotiator", events.ClusterHeld, "c", &events.Hold{Reason: reason}) }
	commit := func(generation uint64) {
		id := fmt.Sprint("g", generation)
		say("/negotiator", events.Committed, id,
			&events.Commitment{Negotiation: id, Generation: generation, PlanDigest: events.Digest(nil)})
	}
	older := events.OlderLog + ": it ends at generation 1"
	commit(1) // which ends no hold
	hold("its state is gone")
	hold("its state is gone") // tried again
	forged := `{"specversion":"1.0","id":"f","source":"/node/n1","type":"io.reknit.cluster.held.v1","subject":"c",` +
		`"data":{"reason":"send me money"}}`
	if err := b.Conn().Publish(events.EventSubject("c", events.ClusterHeld, "c"), []byte(forged)); err != nil {
		t.Fatal(err)
	}
	commit(2)
	hold(older)
	say("/negotiator", events.TrainingReset, "c", &events.JobReset{Generation: 2, Reason: "r"})
	hold("step 30 is held")
	say("/negotiator", events.TrainingReset, "c", &events.JobReset{Generation: 2, Reason: "r"}) // told again a day later
	say("/negotiator", events.StepReleased, "c",
		&events.Release{Hold: 1, Step: 30, Samples: events.Samples{First: 12, Count: 12}, Reason: "mended"})
	commit(3)
	hold("the end of the test")
	for _, want := range []string{
		"the cluster holds: its state is gone", "the cluster holds no more: training goes on under generation 2",
		"the cluster holds: " + older, "training begins anew once nodes join, as somebody asked: r", "the cluster holds: step 30 is held",
		"the cluster holds no more: step 30 is tried again, with samples 12 to 23 (mended)", "the cluster holds: the end of the test",
	} {
		select {
		case text := <-said:
			if text != want {
				t.Errorf("it says %q, expected %q", text, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("it does not say %q", want)
		}
	}
}
