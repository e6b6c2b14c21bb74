package up

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

func TestWhoLooksAtTheTerminalOfUpIsToldWhyTheClusterHolds(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "test", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 2)
	end, err := tellHolds(server.URL(), "c", func(text string) { said <- text })
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
