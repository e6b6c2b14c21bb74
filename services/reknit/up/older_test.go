package up

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// lines is what was printed, in turn.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

func TestAnOlderLogIsToldOnceForEachReasonAndNoOtherHold(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	printed := make(lines, 8)
	tellOlder(t.Context(), server.URL(), "c", printed)
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "negotiator", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	negotiator, older := events.Speaker{Source: "/negotiator", Cluster: "c"}, events.OlderLog+": it ends at generation 1"
	for i, reason := range []string{"nobody has layer 2", older, older, older + ", and more"} {
		held := negotiator.First(time.Now(), string(rune('a'+i)), events.ClusterHeld, "c", &events.Hold{Reason: reason})
		if _, err := b.Publish(t.Context(), held); err != nil {
			t.Fatal(err)
		}
	}
	for _, expected := range []string{older, older + ", and more"} {
		select {
		case line := <-printed:
			if strings.TrimSpace(line) != expected {
				t.Errorf("it prints %q, expected %q", line, expected)
			}
		case <-time.After(time.Minute):
			t.Fatalf("it does not print %q", expected)
		}
	}
}
