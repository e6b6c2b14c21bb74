package up

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/internal/scene"
)

func TestWhoLooksAtTheTerminalOfUpIsToldWhyTheClusterHolds(t *testing.T) {
	b, url := scene.Begin(t, "c")
	said := make(chan string, 2)
	end, err := tellHolds(url, "c", func(text string) { said <- text })
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	negotiator := events.Speaker{Source: "/negotiator", Cluster: "c"}
	for n, payload := range []events.Payload{&events.Hold{Reason: "its state is gone"}, &events.JobReset{Generation: 1, Reason: "r"}} {
		kind := []events.Kind{events.ClusterHeld, events.TrainingReset}[n]
		if _, err := b.Publish(t.Context(), negotiator.First(time.Now(), "x", kind, "c", payload)); err != nil {
			t.Fatal(err)
		}
		if text, want := <-said, []string{"holds: its state is gone", "begins anew"}[n]; !strings.Contains(text, want) {
			t.Errorf("%s: it says %q", kind, text)
		}
	}
}
