package replicate_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/restorer/replicate"
)

// The twin tries every set of groups: none takes less than its bytes over the rates of all who hold any of it.
func TestAPullTakesAsLongAsTheSlowestSetOfLayersOfAll(t *testing.T) {
	several := 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 11))
		rates := make([]float64, 1+random.IntN(5))
		for s := range rates {
			rates[s] = 1 + 9*random.Float64()
		}
		bytes, senders := make([]int64, 1+random.IntN(5)), [][]int{}
		for g := range bytes {
			bytes[g] = 1e9 * (1 + random.Int64N(9))
			senders = append(senders, random.Perm(len(rates))[:1+random.IntN(len(rates))])
		}
		downlink := slices.Max(rates) * (1 + 2*random.Float64())
		got, want, layers := replicate.PullSeconds(bytes, senders, rates, downlink), 0.0, 0
		for set := 1; set < 1<<len(bytes); set++ {
			if took := setSeconds(set, bytes, senders, rates, downlink); took > want {
				want, layers = took, set
			}
		}
		if math.Abs(got-want) > 1e-8*want {
			t.Fatalf("seed %d: %v s, want %v", seed, got, want)
		}
		if layers != 1<<len(bytes)-1 && layers&(layers-1) != 0 {
			several++
		}
	}
	if several == 0 {
		t.Fatal("no case where some of several groups hold up the pull, so nothing was tried")
	}
}

func setSeconds(set int, bytes []int64, senders [][]int, rates []float64, downlink float64) float64 {
	total, sends := 0.0, make([]bool, len(rates))
	for g, size := range bytes {
		if set>>g&1 == 1 {
			total += float64(size)
			for _, s := range senders[g] {
				sends[s] = true
			}
		}
	}
	rate := 0.0
	for s, can := range sends {
		if can {
			rate += rates[s]
		}
	}
	return total / min(rate, downlink)
}

func TestWhatNobodyCanSendTakesForever(t *testing.T) {
	if took := replicate.PullSeconds([]int64{1, 1}, [][]int{{0}, nil}, []float64{5}, 5); !math.IsInf(took, 1) {
		t.Fatalf("took %v s", took)
	}
	if took := replicate.PullSeconds(nil, nil, nil, 0); took != 0 {
		t.Fatalf("nothing took %v s", took)
	}
}
