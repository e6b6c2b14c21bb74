package local

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/reknit/reknit/events"
)

// desk is a state and the trainer that does what it asks for.
type desk struct {
	*testing.T
	*state
	asked []Order
	fails error
}

func newDesk(t *testing.T, copied bool, units ...int64) *desk {
	t.Helper()
	return newDeskOf(t, copied, false, units...)
}

func newLazyDesk(t *testing.T, units ...int64) *desk {
	t.Helper()
	return newDeskOf(t, false, true, units...)
}

func newDeskOf(t *testing.T, copied, lazy bool, units ...int64) *desk {
	t.Helper()
	files, err := makeFiles(t.TempDir(), units, !lazy)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{T: t}
	d.state = newState(files, copied, lazy, func(order Order) error {
		d.asked = append(d.asked, order)
		if d.fails == nil && order.Order == orderGive {
			for _, unit := range order.Units {
				copy(files.units[unit], "from elsewhere")
			}
		}
		return d.fails
	}, firstRecord(len(units)))
	t.Cleanup(d.state.close)
	return d
}

// adopt adopts all units at a step.
func (d *desk) adopt(step uint64) {
	d.Helper()
	if err := d.Adopt([]events.Range{{First: 0, End: len(d.files.units)}}, step); err != nil {
		d.Fatal(err)
	}
}

// take fetches a unit at a step.
func (d *desk) take(unit int, step uint64, content string) []byte {
	d.Helper()
	memory, err := d.Lend(unit, int64(len(d.files.units[unit])))
	if err != nil {
		d.Fatal(err)
	}
	copy(memory, content)
	if err := d.Import(unit, step, memory); err != nil {
		d.Fatal(err)
	}
	return memory
}

// expectSteps compares what is held of a unit.
func (d *desk) expectSteps(unit int, expected ...uint64) {
	d.Helper()
	var held []uint64
	for _, holding := range d.Holdings() {
		if holding.Units.First <= unit && unit < holding.Units.End {
			held = holding.Steps
		}
	}
	if !slices.Equal(held, expected) {
		d.Errorf("unit %d is held at %v: expected %v", unit, held, expected)
	}
}

func (d *desk) expectContent(unit int, step uint64, expected string) {
	d.Helper()
	data, err := d.Export(unit, step)
	if err != nil {
		d.Fatal(err)
	}
	if string(data[:len(expected)]) != expected {
		d.Errorf("unit %d at step %d is %q: expected %q", unit, step, data[:len(expected)], expected)
	}
}

const unitOfPages = 1<<16 - 64 // bytes, of which the last page is not full

// expectRoom compares whose memory is taken, by unit.
func (d *desk) expectRoom(expected ...bool) {
	d.Helper()
	for unit, taken := range expected {
		d.expectRoomOf(unitName(unit), taken)
	}
}

func (d *desk) expectRoomOf(name string, taken bool) {
	d.Helper()
	var file syscall.Stat_t
	if err := syscall.Stat(filepath.Join(d.files.dir.path, name), &file); err != nil {
		d.Fatal(err)
	}
	if got := file.Blocks > 0; got != taken {
		d.Errorf("%s has %d blocks: expected any, %v", name, file.Blocks, taken)
	}
}

func TestANewcomersUnitsAreFetchedStraightIntoTheirFiles(t *testing.T) {
	d := newDesk(t, false, 4096, 4096)
	if memory := d.take(0, 7, "seven"); &memory[0] != &d.files.units[0][0] {
		t.Error("the unit came beside its file, though a newcomer's own state is of no worth")
	}
	d.take(1, 7, "seven")
	d.adopt(7)
	if took := d.asked[0].Took; !slices.Equal(took, []int{0, 1}) {
		t.Errorf("the trainer is told that %v are new", took)
	}
	d.expectContent(1, 7, "seven")
}

func TestWhatIsHeldIsNotOverwrittenBeforeTheUnitThatReplacesItIsAdopted(t *testing.T) {
	d := newDesk(t, false, 4096)
	d.adopt(0)
	copy(d.files.units[0], "mine")
	d.completed(1)
	d.take(0, 2, "theirs")
	d.expectSteps(0, 2, 1)
	d.expectContent(0, 1, "mine")
	d.adopt(2)
	d.expectSteps(0, 2)
	if string(d.files.units[0][:6]) != "theirs" || len(d.files.news) > 0 {
		t.Errorf("the file is %q, and %d others are left", d.files.units[0][:6], len(d.files.news))
	}
}

func TestAnImportOutlastsAFetchOfAnotherStepThatFails(t *testing.T) {
	d := newDesk(t, false, 4096)
	d.adopt(0)
	copy(d.files.units[0], "mine")
	d.completed(1)
	d.take(0, 2, "two")
	memory, err := d.Lend(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	copy(memory, "half of three")
	d.expectContent(0, 2, "two")
	d.expectContent(0, 1, "mine")
	if err := d.Import(0, 3, memory); err != nil {
		t.Fatal(err)
	}
	d.expectSteps(0, 3, 1)
	d.adopt(3)
	d.expectContent(0, 3, "half of three")
}

func TestWhoIsReadyMakesItsStepOnceAndOnlyWhereItIsWanted(t *testing.T) {
	d := newDesk(t, false, 4096, 4096)
	d.adopt(0)
	d.givenUp(true)
	d.expectSteps(0, 1, 0)
	d.expectContent(0, 0, "")
	if len(d.asked) != 1 {
		t.Fatalf("it was asked for %+v", d.asked)
	}
	d.expectContent(1, 1, "")
	d.expectSteps(0, 1)
	d.adopt(1)
	if len(d.asked) != 3 || d.asked[1].Order != orderApply || d.asked[2].Order != orderAdopt {
		t.Errorf("it was asked for %+v", d.asked)
	}
}

func TestWhoIsNotReadyCannotGoOnWithoutTheUnits(t *testing.T) {
	d := newDesk(t, false, 4096)
	d.adopt(0)
	d.givenUp(false)
	if err := d.Adopt([]events.Range{{First: 0, End: 1}}, 1); !errors.Is(err, errNoVersion) {
		t.Errorf("expected that the version is missing, got %v", err)
	}
	if _, err := d.Export(0, 1); err == nil {
		t.Error("a version was given that nobody has")
	}
}

func TestStateThatLivesElsewhereIsCopiedOnceWhenItIsGiven(t *testing.T) {
	d := newDesk(t, true, 4096)
	d.adopt(0)
	d.completed(1)
	d.expectContent(0, 1, "from elsewhere")
	d.expectContent(0, 1, "from elsewhere")
	if len(d.asked) != 2 || d.asked[1].Order != orderGive {
		t.Errorf("it was asked for %+v", d.asked)
	}
	d.completed(2)
	d.expectContent(0, 2, "from elsewhere")
	if len(d.asked) != 3 {
		t.Errorf("the next step is another one: it was asked for %+v", d.asked)
	}
}

func TestWhatIsNotTrainedAnyMoreIsKeptUntilAStepIsCompletedWithoutIt(t *testing.T) {
	d := newDesk(t, false, 4096, 4096)
	d.adopt(0)
	d.completed(1)
	if err := d.Adopt([]events.Range{{First: 0, End: 1}}, 1); err != nil {
		t.Fatal(err)
	}
	d.expectSteps(1, 1)
	d.completed(2)
	d.expectSteps(0, 2)
	d.expectSteps(1)
}

func TestWhoWentAstrayHoldsNothing(t *testing.T) {
	d := newDesk(t, false, 4096)
	d.adopt(0)
	d.take(0, 3, "three")
	d.Forget()
	d.expectSteps(0)
}

// The unit is being hashed when its negotiation is given up and the next plan adopted.
func TestWhoStillReadsAnImportThatWasDroppedDoesNotFault(t *testing.T) {
	d := newDesk(t, false, unitOfPages)
	d.adopt(0)
	d.take(0, 1, "one")
	given, err := d.Export(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	d.adopt(0)
	if given[0] != 0 {
		t.Errorf("it reads %q: expected that the memory was given back", given[:3])
	}
	d.expectRoomOf(unitName(0)+newSuffix, false)
	d.take(0, 2, "two")
	d.expectRoomOf(unitName(0)+newSuffix, true)
	d.expectContent(0, 2, "two")
}

func TestWhatIsNotHeldAnyMoreHasNoMemory(t *testing.T) {
	d := newDesk(t, false, unitOfPages, unitOfPages)
	d.expectRoom(true, true)
	d.adopt(0)
	copy(d.files.units[1], "not needed")
	if err := d.Adopt([]events.Range{{First: 0, End: 1}}, 0); err != nil {
		t.Fatal(err)
	}
	d.expectRoom(true, true) // a step without the unit is not completed yet
	d.completed(1)
	d.expectRoom(true, false)
	d.take(1, 1, "needed again")
	d.expectRoom(true, true)
	d.completed(2)
	d.expectRoom(true, true) // what was imported may still be adopted
	d.completed(3)
	d.expectRoom(true, false)
}

func TestALazyTrainerMakesTheFirstStateOfWhatItIsToTrainOrToGive(t *testing.T) {
	d := newLazyDesk(t, unitOfPages, unitOfPages, unitOfPages)
	d.expectRoom(false, false, false)
	d.expectSteps(2, 0)
	if err := d.Adopt([]events.Range{{First: 1, End: 2}}, 0); err != nil {
		t.Fatal(err)
	}
	d.expectRoom(false, true, false)
	d.expectContent(1, 0, "from elsewhere")
	d.expectContent(0, 0, "from elsewhere")
	d.expectRoom(true, true, false)
	var given []int
	for _, order := range d.asked {
		given = append(given, order.Units...)
	}
	if !slices.Equal(given, []int{1, 0}) {
		t.Errorf("the first states of %v were asked for: expected each once, when it is needed", given)
	}
	d.completed(1)
	d.expectRoom(false, true, false)
}

func TestALazyTrainerTakesTheStateOfARunningJobWithoutMakingItsOwn(t *testing.T) {
	d := newLazyDesk(t, unitOfPages, unitOfPages)
	d.take(1, 7, "seven")
	if err := d.Adopt([]events.Range{{First: 1, End: 2}}, 7); err != nil {
		t.Fatal(err)
	}
	d.expectRoom(false, true)
	d.expectContent(1, 7, "seven")
	if len(d.asked) != 1 || d.asked[0].Order != orderAdopt {
		t.Errorf("it was asked for %+v", d.asked)
	}
}

func TestAFirstStateThatCannotBeMadeIsNotGiven(t *testing.T) {
	d := newLazyDesk(t, unitOfPages)
	d.fails = errors.New("out of memory")
	if _, err := d.Export(0, 0); !errors.Is(err, d.fails) {
		t.Errorf("expected the trainer's error, got %v", err)
	}
	d.fails = nil
	d.expectContent(0, 0, "from elsewhere")
}

func TestAUnitOfAnotherSizeIsRefused(t *testing.T) {
	d := newDesk(t, false, 4096)
	for _, unit := range []int{-1, 0, 1} {
		if _, err := d.Lend(unit, 4095); err == nil {
			t.Errorf("unit %d of 4,095 bytes was taken", unit)
		}
	}
}

func TestATrainerIsToldToLeaveItsUnitsAloneUntilTheyAreCopied(t *testing.T) {
	d := newDesk(t, false, 8)
	release := d.Still()
	if d.files.word(wordStill) != 1 {
		t.Error("the control page does not say so")
	}
	if err := release(); err != nil || d.files.word(wordStill) != 0 {
		t.Errorf("once they are copied it says %d: %v", d.files.word(wordStill), err)
	}
}

// A script that ends by an error copies what it has made since the boundary to where the agent still reads for a snapshot.
func TestACopyOfUnitsIntoWhichAScriptThatEndsCopiedItsStateMeanwhileIsNotTaken(t *testing.T) {
	d := newDesk(t, true, 8)
	if err := d.Still()(); err != nil {
		t.Errorf("of a script that trains on: %v", err)
	}
	release := d.Still()
	d.files.setWord(wordOut, math.MaxUint64)
	if err := release(); err == nil {
		t.Error("the copy counts")
	}
}

func TestACopyOfUnitsThatTheTrainerChangedMeanwhileIsNotTaken(t *testing.T) {
	for name, change := range map[string]func(*desk){
		"it applies":   func(d *desk) { d.files.setWord(wordPhase, phaseApplying) },
		"it completed": func(d *desk) { d.files.setWord(wordCompleted, 1) },
	} {
		d := newDesk(t, false, 8)
		release := d.Still()
		change(d)
		if err := release(); err == nil {
			t.Errorf("%s: the copy counts", name)
		}
	}
}
