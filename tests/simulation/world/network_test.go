package world

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// Seed 19822: a node was mute, and deaf before that was over. As the first ended it took its connection for a good one, for good.
func TestANodeThatIsDeafFindsNoWayToTheHubThoughItIsMuteNoMore(t *testing.T) {
	w := New(Cluster{Seed: 1, Nodes: 2, Layers: 2, Kind: events.DataParallel}, false)
	for _, fault := range []string{"mute n2 for 5s", "deafen n2 for 20s"} {
		if err := w.Do(fault); err != nil {
			t.Fatal(err)
		}
	}
	for _, point := range []struct {
		wait   time.Duration
		online bool
	}{{time.Second, true}, {staleAfter, false}, {5 * time.Second, false}, {15 * time.Second, true}} {
		w.Run(point.wait)
		if w.online("n2") != point.online {
			t.Errorf("after %v n2 takes itself for online: %v, expected %v", w.now, !point.online, point.online)
		}
	}
}
