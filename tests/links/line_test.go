package links

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The twin keeps every packet that waits, and serves them bit by bit of time.
func TestALineQueuesDropsAndDelaysLikeItsTwin(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		shape := Shape{MegabitsPerSecond: 1 + 999*random.Float64(), Delay: time.Duration(random.IntN(30)) * time.Millisecond}
		ours, now := line{shape: shape}, time.Unix(0, 0)
		var leaves []time.Time // when each packet that was taken has left the queue
		for range 2000 {
			now = now.Add(time.Duration(random.IntN(4_000_000)))
			bytes := 40 + random.IntN(1<<16)
			begins := now.Add(-5 * time.Millisecond)
			if len(leaves) > 0 && leaves[len(leaves)-1].After(begins) {
				begins = leaves[len(leaves)-1]
			}
			room := begins.Sub(now) <= 50*time.Millisecond
			arrival, admitted := ours.admit(now, bytes)
			if admitted != room {
				t.Fatalf("seed %d: a wait of %s: admitted %v", seed, begins.Sub(now), admitted)
			}
			if !room {
				continue
			}
			leaves = append(leaves, begins.Add(time.Duration(float64(bytes)*8/shape.MegabitsPerSecond*1e3)))
			if want := latest(now, leaves[len(leaves)-1]).Add(shape.Delay); arrival.Sub(want).Abs() > time.Microsecond {
				t.Fatalf("seed %d: arrives at %s, want %s", seed, arrival, want)
			}
		}
	}
}

func TestACutLinePassesNothing(t *testing.T) {
	var cut line
	if _, admitted := cut.admit(time.Now(), 1); admitted {
		t.Error("a packet passed")
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
