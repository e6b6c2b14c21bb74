package state

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/gradient"
	"github.com/reknit/reknit/services/trainer/model"
)

var shape = model.Shape{Context: 2, Window: 2, Width: 3, Hidden: 4, Blocks: 2, Vocabulary: 5}

func units(first, end int) events.Range { return events.Range{First: first, End: end} }

func adopted(t *testing.T, first, end int) *State {
	t.Helper()
	s := New(shape, 1)
	if err := s.Adopt([]events.Range{units(first, end)}, 0); err != nil {
		t.Fatal(err)
	}
	return s
}

// train brings a layer one step further.
func (s *State) train(t *testing.T, layer int) {
	t.Helper()
	sums := gradient.NewAccumulator(shape.Parameters(layer))
	if err := sums.Add(make([]float32, shape.Parameters(layer))); err != nil {
		t.Fatal(err)
	}
	next, err := model.DefaultAdam().Apply(s.Trained(layer), sums, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.Advance(next)
}

func expectHoldings(t *testing.T, s *State, want ...events.Holding) {
	t.Helper()
	if got := s.Holdings(); !reflect.DeepEqual(got, want) {
		t.Errorf("holdings are %+v: expected %+v", got, want)
	}
}

func TestANewNodeCanGiveEveryLayerAtStepZero(t *testing.T) {
	s := New(shape, 1)
	expectHoldings(t, s, events.Holding{Units: units(0, 4), Steps: []uint64{0}})
	for layer := range 4 {
		want, err := model.NewLayer(shape, layer, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Export(layer, 0); err != nil || !bytes.Equal(got, model.MarshalLayer(want)) {
			t.Errorf("layer %d at step 0 is not the seed's: %v", layer, err)
		}
	}
	if _, err := s.Export(0, 1); err == nil {
		t.Error("a new node gave step 1")
	}
}

// An attempt that was aborted leaves what it fetched aside, and the next plan may go on from another step.
func TestAnImportIsAdoptedAtNoStepButItsOwn(t *testing.T) {
	s, other := adopted(t, 0, 2), adopted(t, 2, 3)
	for range 2 {
		s.train(t, 0)
		s.train(t, 1)
	}
	other.train(t, 2)
	exported, err := other.Export(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Import(2, 1, exported); err != nil {
		t.Fatal(err)
	}
	if err := s.Adopt([]events.Range{units(0, 3)}, 2); err == nil {
		t.Errorf("adopted at step 2: layer 2 is of step %d, expected an error", s.Trained(2).Step)
	}
	if err := s.Adopt([]events.Range{units(0, 3)}, 1); err != nil {
		t.Errorf("at the step of the import: %v", err)
	}
}

func TestHoldingsShowLayersThatAreAStepApart(t *testing.T) {
	s := adopted(t, 0, 3)
	expectHoldings(t, s, events.Holding{Units: units(0, 3), Steps: []uint64{0}})
	s.train(t, 0)
	s.train(t, 1)
	expectHoldings(t, s,
		events.Holding{Units: units(0, 2), Steps: []uint64{1, 0}},
		events.Holding{Units: units(2, 3), Steps: []uint64{0}})
	s.train(t, 2)
	s.Completed(1)
	s.train(t, 0)
	s.train(t, 1)
	s.train(t, 2)
	s.Completed(2)
	s.train(t, 0)
	expectHoldings(t, s,
		events.Holding{Units: units(0, 1), Steps: []uint64{3, 2, 1}},
		events.Holding{Units: units(1, 3), Steps: []uint64{2, 1}})
}

func TestALayerThatIsAheadRollsBackAndOneThatIsMissingIsTaken(t *testing.T) {
	ahead, other := adopted(t, 0, 2), adopted(t, 2, 4)
	ahead.train(t, 0)
	ahead.train(t, 1)
	ahead.train(t, 0)
	other.train(t, 2)
	exported, err := other.Export(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := ahead.Import(2, 1, exported); err != nil {
		t.Fatal(err)
	}
	if err := ahead.Adopt([]events.Range{units(0, 3)}, 1); err != nil {
		t.Fatal(err)
	}
	expectHoldings(t, ahead,
		events.Holding{Units: units(0, 2), Steps: []uint64{1, 0}},
		events.Holding{Units: units(2, 3), Steps: []uint64{1}})
	if got := model.MarshalLayer(ahead.Trained(2)); !bytes.Equal(got, exported) {
		t.Error("the adopted layer is not the imported one")
	}
	if err := ahead.Adopt([]events.Range{units(0, 3)}, 1); err != nil {
		t.Errorf("adopting the same again: %v", err)
	}
}

func TestAnAdoptionThatIsNotPossibleChangesNothing(t *testing.T) {
	s := adopted(t, 0, 2)
	s.train(t, 0)
	s.train(t, 1)
	if err := s.Adopt([]events.Range{units(0, 3)}, 1); err == nil {
		t.Fatal("layer 2 at step 1 was adopted from nowhere")
	}
	expectHoldings(t, s, events.Holding{Units: units(0, 2), Steps: []uint64{1, 0}})
}

func TestLayersTakenAwayAreKeptUntilTheNextStepIsComplete(t *testing.T) {
	s := adopted(t, 0, 3)
	for layer := range 3 {
		s.train(t, layer)
	}
	s.Completed(1)
	if err := s.Adopt([]events.Range{units(2, 3)}, 1); err != nil {
		t.Fatal(err)
	}
	expectHoldings(t, s, events.Holding{Units: units(0, 3), Steps: []uint64{1, 0}})
	if s.Trained(0) != nil {
		t.Error("a layer that was taken away is trained")
	}
	s.train(t, 2)
	s.Completed(2)
	expectHoldings(t, s, events.Holding{Units: units(2, 3), Steps: []uint64{2, 1}})
	if _, err := s.Export(0, 1); err == nil {
		t.Error("a dropped layer was given")
	}
}

func TestANodeThatLosesItsPlaceTrainsNothing(t *testing.T) {
	s := adopted(t, 0, 2)
	if err := s.Adopt(nil, 0); err != nil {
		t.Fatal(err)
	}
	if digests := s.Digests(); len(digests) != 0 {
		t.Errorf("digests are %v: expected none", digests)
	}
}

func TestOnlyTheLayerAskedForIsImported(t *testing.T) {
	s := New(shape, 1)
	exported, err := s.Export(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	foreign := shape
	foreign.Hidden++
	other, err := New(foreign, 1).Export(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"another layer":   s.Import(2, 0, exported),
		"another version": s.Import(1, 1, exported),
		"another shape":   s.Import(1, 0, other),
		"half a layer":    s.Import(1, 0, exported[:len(exported)/2]),
	} {
		if err == nil {
			t.Errorf("%s was imported", name)
		}
	}
}

// astray is a node that trained layer 0 to step 1 as others did, and whose memory then lost a bit of it; right is what
// they hold.
func astray(t *testing.T) (s *State, right []byte) {
	t.Helper()
	s = adopted(t, 0, 2)
	s.train(t, 0)
	s.train(t, 1)
	s.Completed(1)
	right = model.MarshalLayer(s.Trained(0))
	s.Trained(0).Parameters[0]++
	return s, right
}

func (s *State) mustImport(t *testing.T, layer int, step uint64, data []byte) {
	t.Helper()
	if err := s.Import(layer, step, data); err != nil {
		t.Fatal(err)
	}
}

func (s *State) mustAdopt(t *testing.T, step uint64, ranges ...events.Range) {
	t.Helper()
	if err := s.Adopt(ranges, step); err != nil {
		t.Fatal(err)
	}
}

func TestAVerifiedImportIsAdoptedWhateverTheNodeHoldsAtThatStep(t *testing.T) {
	s, right := astray(t)
	s.mustImport(t, 0, 1, right)
	s.mustAdopt(t, 1, units(0, 1))
	if !bytes.Equal(model.MarshalLayer(s.Trained(0)), right) {
		t.Error("the node trains on with the layer that went astray")
	}
	if given, err := s.Export(0, 1); err != nil || !bytes.Equal(given, right) {
		t.Errorf("the node gives the layer that went astray (%v)", err)
	}
}

func TestVersionsThatAnImportTookThePlaceOfAreNotRevived(t *testing.T) {
	s, right := astray(t)
	s.mustImport(t, 0, 1, right)
	s.mustAdopt(t, 1, units(0, 2))
	expectHoldings(t, s,
		events.Holding{Units: units(0, 1), Steps: []uint64{1}},
		events.Holding{Units: units(1, 2), Steps: []uint64{1, 0}})
}

func TestVersionsAheadOfTheResumeStepAreNotRevived(t *testing.T) {
	s := adopted(t, 0, 1)
	for step := range uint64(3) {
		s.train(t, 0)
		s.Completed(step + 1)
	}
	s.mustAdopt(t, 2, units(0, 1))
	if err := s.Adopt([]events.Range{units(0, 1)}, 3); err == nil {
		t.Error("step 3 of a history that was left at step 2 was adopted")
	}
}

func TestAStateThatIsToldToForgetHoldsNothing(t *testing.T) {
	for name, s := range map[string]*State{"one that trains": adopted(t, 0, 4), "a new one": New(shape, 1)} {
		exported, err := s.Export(1, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.mustImport(t, 1, 0, exported)
		s.Forget()
		expectHoldings(t, s)
		if given, err := s.Export(1, 0); err == nil {
			t.Errorf("%s gave %d bytes of what it forgot", name, len(given))
		}
		if digests := s.Digests(); len(digests) > 0 {
			t.Errorf("%s still trains %v", name, digests)
		}
	}
}

func TestAStateThatForgotAdoptsWhatIsImported(t *testing.T) {
	s, right := astray(t)
	s.Forget()
	if err := s.Adopt([]events.Range{units(0, 1)}, 1); err == nil {
		t.Fatal("a layer that was forgotten was adopted")
	}
	s.mustImport(t, 0, 1, right)
	s.mustAdopt(t, 1, units(0, 1))
	expectHoldings(t, s, events.Holding{Units: units(0, 1), Steps: []uint64{1}})
}

func TestWhatWasImportedIsHeldUntilAPlanIsAdoptedOrItsStepIsLongPast(t *testing.T) {
	other := adopted(t, 2, 3)
	other.train(t, 2)
	exported, err := other.Export(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	begin := func() *State {
		s := adopted(t, 0, 1)
		s.train(t, 0)
		s.Completed(1)
		s.mustImport(t, 2, 1, exported)
		expectHoldings(t, s,
			events.Holding{Units: units(0, 1), Steps: []uint64{1, 0}},
			events.Holding{Units: units(2, 3), Steps: []uint64{1}})
		if given, err := s.Export(2, 1); err != nil || !bytes.Equal(given, exported) {
			t.Errorf("the import is not given: %v", err)
		}
		return s
	}
	again := begin() // the next attempt finds it there
	again.mustAdopt(t, 1, units(0, 1), units(2, 3))
	elsewhere := begin() // another plan does without it
	elsewhere.mustAdopt(t, 1, units(0, 1))
	expectHoldings(t, elsewhere, events.Holding{Units: units(0, 1), Steps: []uint64{1, 0}})
	on := begin() // training goes on under the old plan
	on.train(t, 0)
	on.Completed(2)
	expectHoldings(t, on,
		events.Holding{Units: units(0, 1), Steps: []uint64{2, 1}},
		events.Holding{Units: units(2, 3), Steps: []uint64{1}})
	on.train(t, 0)
	on.Completed(3)
	expectHoldings(t, on, events.Holding{Units: units(0, 1), Steps: []uint64{3, 2}})
}

func TestAnImportStandsBesideTheOtherVersionsOfItsUnit(t *testing.T) {
	ahead := adopted(t, 0, 1)
	imports := [][]byte{}
	for range 3 {
		imports = append(imports, model.MarshalLayer(ahead.Trained(0)))
		ahead.train(t, 0)
	}
	for step, want := range [][]uint64{{1, 0}, {1, 0}, {2, 1, 0}} {
		s := adopted(t, 0, 1)
		s.train(t, 0)
		s.mustImport(t, 0, uint64(step), imports[step])
		expectHoldings(t, s, events.Holding{Units: units(0, 1), Steps: want})
	}
}

// The newest import takes the place of the one before.
func TestOfEachLayerOneImportIsKept(t *testing.T) {
	other, s := adopted(t, 1, 2), adopted(t, 0, 1)
	for step := uint64(1); step <= 20; step++ {
		other.train(t, 1)
		exported, err := other.Export(1, step)
		if err != nil {
			t.Fatal(err)
		}
		s.mustImport(t, 1, step, exported)
	}
	expectHoldings(t, s,
		events.Holding{Units: units(0, 1), Steps: []uint64{0}},
		events.Holding{Units: units(1, 2), Steps: []uint64{20}})
}

func TestALargeUnitIsToldByTheDigestOfItsBlocks(t *testing.T) {
	large := model.Shape{Context: 2, Window: 2, Width: 512, Hidden: 1024, Blocks: 1, Vocabulary: 5}
	layer, err := model.NewLayer(large, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	data := model.MarshalLayer(layer)
	if got, want := model.Digest(layer), events.DigestOfUnit(data); got != want || len(data) <= events.BlockBytes {
		t.Errorf("%d bytes: got %s, expected %s", len(data), got, want)
	}
}
