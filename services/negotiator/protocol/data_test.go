package protocol

import (
	"math/rand/v2"
	"testing"
)

// from goes on where the stretches say that a step is.
func from(d Data, step uint64, globalBatch int) Data {
	return d.From(step, d.Position(step, globalBatch), globalBatch)
}

func TestWhatBeginsWithStepsOfAnotherClusterGoesOnAtTheirPosition(t *testing.T) {
	data := from(Data{}.From(100, 1700, 24), 105, 12)
	for step, want := range map[uint64]uint64{100: 1700, 104: 1700 + 4*24, 106: 1700 + 5*24 + 12} {
		if got := data.Position(step, 0); got != want {
			t.Errorf("position %d at step %d, expected %d", got, step, want)
		}
	}
}

func TestNoStepStandsBeforeTheFirstSample(t *testing.T) {
	data := Data{}.From(41, 446, 12) // 41 steps of fewer samples came before, and the log that told of them is lost
	for step, want := range map[uint64]uint64{0: 0, 3: 0, 4: 2, 40: 434, 41: 446} {
		if got := data.Position(step, 12); got != want {
			t.Errorf("position %d at step %d, expected %d", got, step, want)
		}
	}
}

func TestTheBatchThatStaysIsOneStretch(t *testing.T) {
	data := from(from(from(nil, 0, 12), 40, 12), 39, 12)
	if len(data) != 1 || data.Position(42, 0) != 42*12 {
		t.Errorf("%v, at step 42 position %d", data, data.Position(42, 0))
	}
}

func TestAfterABatchThatChangedThePositionIsThatOfTheStepsThatCount(t *testing.T) {
	data := from(from(from(nil, 0, 10), 5, 20), 8, 30)
	for step, want := range map[uint64]uint64{0: 0, 5: 50, 6: 70, 8: 110, 9: 140} {
		if got := data.Position(step, 0); got != want {
			t.Errorf("position %d at step %d, expected %d", got, step, want)
		}
	}
	if back := from(data, 4, 20); back.Position(6, 0) != 40+2*20 || len(back) != 2 {
		t.Errorf("back at step 4: %v, at step 6 position %d", back, back.Position(6, 0))
	}
}

// What each step trained, and what was undone, is told one by one beside.
func TestPositionsAreTheSumsOfTheStepsThatCount(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 9))
	for range 200 {
		var data Data
		var batches []int // of each step that counts
		for range 1 + random.IntN(12) {
			step := random.IntN(len(batches) + 1)
			batch := 4 * (1 + random.IntN(3))
			data = from(data, uint64(step), batch)
			batches = batches[:step]
			for range 1 + random.IntN(6) {
				batches = append(batches, batch)
			}
		}
		sum := uint64(0)
		for step, batch := range batches {
			if got := data.Position(uint64(step), 0); got != sum {
				t.Fatalf("%v: position %d at step %d of %v, expected %d", data, got, step, batches, sum)
			}
			sum += uint64(batch)
		}
	}
}

func TestWhatIsRememberedOfBatchesIsBounded(t *testing.T) {
	var data Data
	for step := range uint64(3 * MostStretches) {
		data = from(data, step, 1+int(step%2))
	}
	if len(data) != MostStretches || data.Position(3*MostStretches, 0) != 3*MostStretches*3/2 {
		t.Errorf("%d stretches, position %d", len(data), data.Position(3*MostStretches, 0))
	}
}
