package ledger

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

func TestEveryEpochHasEachSampleOnceInAnOrderOfItsOwn(t *testing.T) {
	for _, samples := range []uint64{1, 2, 3, 4, 5, 16, 17, 1000, 65536} {
		order := Order{Samples: samples, Seed: 7}
		var epochs [][]uint64
		for epoch := range uint64(2) {
			var all []uint64
			for at := range samples {
				all = append(all, order.At(epoch*samples+at))
			}
			epochs = append(epochs, slices.Clone(all))
			slices.Sort(all)
			for sample, got := range all {
				if got != uint64(sample) {
					t.Fatalf("%d samples, epoch %d: sample %d is missing", samples, epoch, sample)
				}
			}
		}
		if samples > 5 && slices.Equal(epochs[0], epochs[1]) {
			t.Errorf("%d samples have the same order in both epochs", samples)
		}
	}
}

func TestAnotherSeedIsAnotherOrder(t *testing.T) {
	equal := 0
	for position := range uint64(1000) {
		if (Order{1000, 1}).At(position) == (Order{1000, 2}).At(position) {
			equal++
		}
	}
	if equal > 10 {
		t.Errorf("%d of 1000 samples stand where they stand with another seed: expected about one", equal)
	}
}

// Neighbours in the data, such as windows of one text, are no neighbours in an epoch.
func TestSamplesThatStandSideBySideAreSpreadEvenly(t *testing.T) {
	const samples, buckets = 100_000, 10
	order := Order{Samples: samples, Seed: 3}
	var count [buckets]int
	for position := range uint64(samples) {
		step := (order.At(position+1) + samples - order.At(position)) % samples
		count[step*buckets/samples]++
	}
	for bucket, got := range count {
		if got < 9_500 || got > 10_500 {
			t.Errorf("%d steps between neighbours in tenth %d: expected about 10,000", got, bucket)
		}
	}
}

func TestTheOrderIsThatOfTheOtherLanguage(t *testing.T) {
	var golden []struct{ Samples, Seed, Position, Sample uint64 }
	data, err := os.ReadFile("testdata/order.json")
	if err == nil {
		err = json.Unmarshal(data, &golden)
	}
	if err != nil || len(golden) == 0 {
		t.Fatal(len(golden), err)
	}
	for _, g := range golden {
		if got := (Order{g.Samples, g.Seed}).At(g.Position); got != g.Sample {
			t.Errorf("%+v: sample %d", g, got)
		}
	}
}
