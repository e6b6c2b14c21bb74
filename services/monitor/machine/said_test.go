package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestWhatWasSaidLastOfEachDirectionIsKnownInWhateverOrderItWasSaid(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var said told
	twin := map[direction]events.Measurement{}
	for i := range 2000 {
		way := direction{fmt.Sprintf("n%d", random.IntN(20)), fmt.Sprintf("n%d", random.IntN(20))}
		got, known := said.of(way)
		if want, expected := twin[way]; got != want || known != expected {
			t.Fatalf("of %v %v is known: %v, want %v: %v", way, got, known, want, expected)
		}
		twin[way] = events.Measurement{From: way.from, To: way.to, BandwidthBytesPerSecond: float64(i)}
		said.note(twin[way])
	}
	inOrder := slices.IsSortedFunc(said, func(a, b events.Measurement) int {
		return compareDirections(direction{a.From, a.To}, direction{b.From, b.To})
	})
	if len(said) != len(twin) || !inOrder {
		t.Errorf("%d are kept of %d, in order: %v", len(said), len(twin), inOrder)
	}
}
