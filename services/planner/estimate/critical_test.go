package estimate

import (
	"math/rand"
	"testing"
)

func TestTheCriticalPathIsAsLongAsTheScheduleAndNoLongerThanAnyOther(t *testing.T) {
	const seed = 5
	random := rand.New(rand.NewSource(seed))
	var trail Trail
	for round := range 2000 {
		stages := 1 + random.Intn(8)
		drawn := func() Pipeline {
			edges := make([]float64, stages-1)
			for edge := range edges {
				edges[edge] = 3
			}
			return Pipeline{
				ForwardSeconds: randomTimes(random, stages, 9), BackwardSeconds: randomTimes(random, stages, 9),
				ForwardTransferSeconds: edges, BackwardTransferSeconds: edges,
			}
		}
		p, other := drawn(), drawn()
		p.MicroBatches = 1 + random.Intn(20)
		other.MicroBatches = p.MicroBatches
		path := p.Critical(&trail)
		if got, want := path.along(p), OneForwardOneBackward(p).MakespanSeconds; got != want {
			t.Fatalf("seed %d round %d: %+v takes %v, its critical path %+v takes %v", seed, round, p, want, path, got)
		}
		if got, most := path.along(other), OneForwardOneBackward(other).MakespanSeconds; got > most {
			t.Fatalf("seed %d round %d: %+v takes %v, but the path %+v %v", seed, round, other, most, path, got)
		}
	}
}

// along is what a pipeline, all of whose transfers take 3 seconds, takes on a path.
func (path Path) along(p Pipeline) float64 {
	seconds := 3 * path.Transfers
	for s := range p.ForwardSeconds {
		seconds += path.Forwards[s]*p.ForwardSeconds[s] + path.Backwards[s]*p.BackwardSeconds[s]
	}
	return seconds
}
