package profile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func seconds(forward float64) Cost {
	return Cost{ForwardSeconds: forward, BackwardSeconds: 2 * forward}
}

func TestALayerTakesWhatMostOfTheLastNodesSay(t *testing.T) {
	layers := Layers{}
	for n, forward := range []float64{9, 1, 1000, 2, 3, 0, 4} { // the first two are forgotten
		layers.Take(fmt.Sprint("n", n), 3, []Cost{seconds(forward)})
	}
	if cost, _ := layers.Of(3); cost != seconds(3) || len(layers[3]) != Kept {
		t.Errorf("of %d samples: %+v, expected 3 s", len(layers[3]), cost)
	}
	layers.Take("n4", 3, []Cost{seconds(1)}) // in the place of its 3
	if cost, _ := layers.Of(3); cost != seconds(2) || len(layers[3]) != Kept {
		t.Errorf("of %d samples: %+v, expected 2 s", len(layers[3]), cost)
	}
}

func TestLayersThatScatterAreAlikeAndOnesThatDifferAreNot(t *testing.T) {
	for what, test := range map[string]struct {
		declared, measured, want []float64 // seconds forward; zero: none
	}{
		"nothing is measured":        {[]float64{1, 2}, []float64{0, 0}, []float64{1, 2}},
		"nothing is known":           {[]float64{0, 0}, []float64{0, 0}, []float64{0, 0}},
		"equal ones, with noise":     {[]float64{0, 0, 0, 0}, []float64{1.1, 0.9, 1, 1}, []float64{1, 1, 1, 1}},
		"one of which differs":       {[]float64{0, 0, 0, 0}, []float64{1.1, 0.9, 1, 5}, []float64{1, 1, 1, 5}},
		"one that nobody measured":   {[]float64{0, 0, 0}, []float64{1, 1, 0}, []float64{1, 1, 1}},
		"as declared, half as fast":  {[]float64{1, 2, 3}, []float64{2.2, 3.9, 5.9}, []float64{2, 4, 6}},
		"and one unlike the others":  {[]float64{1, 2, 3}, []float64{2, 4, 60}, []float64{2, 4, 60}},
		"one is declared to be free": {[]float64{0, 2, 2}, []float64{7, 4, 4}, []float64{7, 4, 4}},
		"and really takes no time":   {[]float64{0, 2, 2}, []float64{0, 4, 4}, []float64{0, 4, 4}},
	} {
		layers, declared := Layers{}, make([]Cost, len(test.declared))
		for n := range declared {
			declared[n] = seconds(test.declared[n])
			if test.measured[n] > 0 {
				layers.Take("n1", n, []Cost{seconds(test.measured[n])})
			}
		}
		for n, got := range layers.All(declared) {
			if want := seconds(test.want[n]); math.Abs(got.Seconds()-want.Seconds()) > 1e-9 || math.Abs(got.ForwardSeconds-want.ForwardSeconds) > 1e-9 {
				t.Errorf("%s: layer %d takes %+v, expected %+v", what, n, got, want)
			}
		}
	}
}

// Whatever a minority of the last tellers says, a layer takes what some of the others said or less than all of them.
func TestTwoOfFiveWhoLieMoveNothingBeyondWhatTheOthersSay(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		layers, honest := Layers{}, []float64{}
		for n := range Kept {
			forward := 1 + random.Float64()
			if n < 2 {
				forward = math.Pow(10, 12*random.Float64()-6)
			} else {
				honest = append(honest, forward)
			}
			layers.Take(fmt.Sprint("n", n), 0, []Cost{seconds(forward)})
		}
		cost, _ := layers.Of(0)
		if cost.ForwardSeconds > slices.Max(honest) || cost.ForwardSeconds < slices.Min(honest) {
			t.Fatalf("seed %d: %v, where the honest say %v", seed, cost.ForwardSeconds, honest)
		}
	}
}

func TestTheWordOfANodeThatIsGoneCountsUntilOneThatIsHereTells(t *testing.T) {
	layers := Layers{}
	layers.Take("n1", 0, []Cost{seconds(9), seconds(9)})
	layers.Take("n2", 0, []Cost{seconds(2)})
	layers.Leave("n1")
	if first, _ := layers.Of(0); first != seconds(2) {
		t.Errorf("layer 0: %+v, expected what n2 says, who is here", first)
	}
	if second, _ := layers.Of(1); second != seconds(9) {
		t.Errorf("layer 1: %+v, expected what n1 said, as nobody else did", second)
	}
	layers.Take("n3", 1, []Cost{seconds(3)})
	if second, _ := layers.Of(1); second != seconds(3) {
		t.Errorf("layer 1: %+v, expected what n3 says, who is here", second)
	}
}

func TestFewAreBelievedAboutActivationsAsFarAsTheyAreNearWhatIsDeclared(t *testing.T) {
	for told, want := range map[int64]int64{1: 25, 60: 60, 300: 300, 1 << 40: 400} {
		layers, declared := Layers{}, []Cost{{ForwardSeconds: 1, BackwardSeconds: 2, ActivationBytes: 100}}
		for n := range enough {
			if got := layers.All(declared)[0].ActivationBytes; n > 0 && got != want {
				t.Errorf("%d tell %d bytes, 100 are declared: expected %d, got %d", n, told, want, got)
			}
			layers.Take(fmt.Sprint("n", n), 0, []Cost{{ForwardSeconds: 1, BackwardSeconds: 2, ActivationBytes: told}})
		}
		if got := layers.All(declared)[0].ActivationBytes; got != told {
			t.Errorf("%d tell %d bytes: got %d", enough, told, got)
		}
	}
}

func TestOfTwoTheLargerActivationsCount(t *testing.T) {
	layers := Layers{}
	layers.Take("n1", 0, []Cost{{ForwardSeconds: 1, ActivationBytes: 1}})
	layers.Take("n2", 0, []Cost{{ForwardSeconds: 1, ActivationBytes: 50}})
	if cost, _ := layers.Of(0); cost.ActivationBytes != 50 {
		t.Errorf("%+v, expected 50 bytes: a plan that does not fit ends trainers", cost)
	}
}
