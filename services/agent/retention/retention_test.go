package retention

import (
	"slices"
	"testing"
	"time"
)

func part(step uint64, node string, units ...int) Part {
	return Part{ID: ID{Step: step, Plan: "p"}, Node: node, Units: units, Whole: true, Bytes: 10}
}

func torn(p Part) Part {
	p.Whole = false
	return p
}

func steps(ids []ID) (list []uint64) {
	for _, id := range ids {
		list = append(list, id.Step)
	}
	return list
}

func names(parts []Part) (list []string) {
	for _, p := range parts {
		list = append(list, p.Node)
	}
	return list
}

func TestASnapshotIsCompleteWhenItsPartsHoldEveryUnit(t *testing.T) {
	parts := []Part{
		part(8, "a", 0, 1), part(8, "b", 2),
		part(16, "a", 0, 1), torn(part(16, "b", 2)),
		part(24, "a", 0, 1), part(24, "b", 2), part(24, "c", 2),
	}
	if got := steps(Complete(parts, 3)); !slices.Equal(got, []uint64{24, 8}) {
		t.Errorf("complete are %v: expected 24 and 8", got)
	}
}

func TestPartsOfOneStepUnderTwoPlansAreNotOneSnapshot(t *testing.T) {
	other := part(8, "b", 1)
	other.Plan = "q"
	if got := Complete([]Part{part(8, "a", 0), other}, 2); len(got) > 0 {
		t.Errorf("complete is %v: expected nothing", got)
	}
}

func TestWhatIsOlderThanTheNewestCompleteOnesIsObsolete(t *testing.T) {
	parts := []Part{
		part(8, "oldest", 0, 1),
		part(16, "kept", 0, 1),
		part(20, "given up", 0),
		part(24, "newest", 0, 1),
		torn(part(32, "being written", 0)),
	}
	if got := names(Obsolete(parts, Complete(parts, 2), 2, trained)); !slices.Equal(got, []string{"oldest", "given up"}) {
		t.Errorf("obsolete are %v", got)
	}
}

// trained is the history of which all parts are.
var trained = History{Plan: "p"}

// again is a history that went on from a step of it.
func again(step uint64) History { return History{Resume: step, Plan: "q"} }

func anew(p Part) Part {
	p.Plan = "q"
	return p
}

// since is the history of a plan that went on where the one of again had come to.
func since(step uint64) History { return History{Resume: step, Plan: "r", Parent: "q"} }

func TestOfStepsThatWereTrainedTwiceTheSnapshotThatWasToldLastStays(t *testing.T) {
	for _, step := range []uint64{9, 6} {
		parts := []Part{part(3, "oldest"), part(9, "undone"), anew(part(step, "told last"))}
		told := []ID{{step, "q"}, {9, "p"}, {3, "p"}}
		if got := names(Spare(parts, told, since(9))); !slices.Equal(got, []string{"oldest", "undone"}) {
			t.Errorf("of step %d: %v may go", step, got)
		}
		if got := names(Obsolete(parts, told, 1, since(9))); slices.Contains(got, "told last") {
			t.Errorf("of step %d: obsolete are %v", step, got)
		}
	}
}

func TestAPartIsNotObsoleteBesideStepsThatWereUndoneBeforeIt(t *testing.T) {
	parts := []Part{part(8, "undone"), part(9, "undone, too"), anew(part(6, "others may not have written theirs"))}
	if got := names(Obsolete(parts, []ID{{9, "p"}, {8, "p"}}, 2, since(9))); len(got) > 0 {
		t.Errorf("obsolete are %v", got)
	}
}

func TestStepsThatAreTrainedAgainAreNotObsoleteBesideThoseThatWereLeft(t *testing.T) {
	parts := []Part{part(24, "old"), part(48, "left"), part(54, "left, too"), anew(part(30, "new"))}
	complete := Told(parts, []ID{{30, "q"}, {48, "p"}, {24, "p"}})
	if got := names(Obsolete(parts, complete, 2, again(27))); !slices.Equal(got, []string{"left", "left, too"}) {
		t.Errorf("obsolete are %v", got)
	}
}

func TestWhatWasLeftStaysUntilSomethingElseIsComplete(t *testing.T) {
	parts := []Part{part(48, "a", 0, 1), anew(part(30, "a", 0)), anew(torn(part(30, "b", 1)))}
	if got := Obsolete(parts, Complete(parts, 2), 2, again(0)); len(got) > 0 {
		t.Errorf("obsolete are %v", names(got))
	}
}

func TestTheCompleteSnapshotThatWasLeftStaysUntilOneIsCompleteSince(t *testing.T) {
	parts := []Part{part(24, "a", 0), part(48, "a", 0), anew(part(30, "a", 0))}
	history := again(24)
	if got := Obsolete(parts, Told(parts, []ID{{48, "p"}, {24, "p"}}), 2, history); len(got) > 0 {
		t.Errorf("obsolete are %v: others may have removed what is older than the complete one", got)
	}
	if got := Obsolete(parts, Told(parts, []ID{{30, "q"}, {48, "p"}, {24, "p"}}), 2, history); len(got) != 1 || got[0].Step != 48 {
		t.Errorf("obsolete are %v: expected that of step 48", got)
	}
}

func TestWhatWasLeftMakesRoomFirst(t *testing.T) {
	own := []Part{part(8, "old"), part(48, "left"), part(54, "left, too")}
	if retire, ok := Room(own, part(99, "next"), nil, Bound{20, 9}, again(27)); !ok || !slices.Equal(names(retire), []string{"left", "left, too"}) {
		t.Errorf("retire %v, %v", names(retire), ok)
	}
}

func TestNothingIsObsoleteBeforeASnapshotIsComplete(t *testing.T) {
	if got := Obsolete([]Part{part(8, "a", 0), part(16, "a", 0), torn(part(24, "b", 1))}, nil, 1, trained); len(got) > 0 {
		t.Errorf("obsolete are %v: expected none", names(got))
	}
}

func TestTheOldestPartsMakeRoom(t *testing.T) {
	own := []Part{part(24, "newest", 0), part(8, "oldest", 0), part(16, "older", 0)}
	if retire, ok := Room(own, part(99, "next"), nil, Bound{35, 9}, trained); !ok || !slices.Equal(names(retire), []string{"oldest"}) {
		t.Errorf("for 10 bytes more than 30 within 35: retire %v, %v", names(retire), ok)
	}
	if retire, ok := Room(own, part(99, "next"), nil, Bound{40, 9}, trained); !ok || len(retire) > 0 {
		t.Errorf("all fits: retire %v, %v", names(retire), ok)
	}
}

func TestNoPartOfTheNewestCompleteSnapshotMakesRoom(t *testing.T) {
	own := []Part{part(8, "older", 0), part(16, "complete", 0), part(24, "newer", 0), torn(part(32, "torn", 0))}
	retire, ok := Room(own, part(40, "next"), Complete(own[1:2], 1), Bound{20, 9}, trained)
	if !ok || !slices.Equal(names(retire), []string{"torn", "older", "newer"}) {
		t.Errorf("retire %v, %v", names(retire), ok)
	}
	if got := names(Spare(own, nil, trained)); !slices.Equal(got, []string{"torn", "older", "complete"}) {
		t.Errorf("where none is known to be complete %v may go: expected the newest whole part to stay", got)
	}
}

func TestNoNodeKeepsMorePartsThanItMay(t *testing.T) {
	own := []Part{part(8, "a", 0), part(16, "a", 0), part(24, "a", 0), part(4, "b", 1)}
	retire, ok := Room(own, part(32, "a"), []ID{{8, "p"}}, Bound{100, 3}, trained)
	if !ok || len(retire) != 1 || retire[0].Step != 16 {
		t.Errorf("retire %v, %v: expected a's oldest but that of the complete one", retire, ok)
	}
}

func TestOlderOnesAreKeptUntilEnoughAreKnownToBeComplete(t *testing.T) {
	parts := []Part{part(8, "told before the restart", 0), part(16, "told since", 0)}
	if got := Obsolete(parts, Told(parts, []ID{{16, "p"}, {24, "p"}}), 2, trained); len(got) > 0 {
		t.Errorf("obsolete are %v", names(got))
	}
}

func TestTheNewestWholePartMakesNoRoom(t *testing.T) {
	own := []Part{part(8, "whole", 0), torn(part(16, "torn", 0))}
	if retire, ok := Room(own, part(99, "next"), nil, Bound{15, 9}, trained); ok || !slices.Equal(names(retire), []string{"torn"}) {
		t.Errorf("retire %v, %v: expected the torn one, and no room", names(retire), ok)
	}
}

func TestASnapshotThatWasToldTwiceCountsOnce(t *testing.T) {
	own := []Part{part(8, "a", 0), part(16, "a", 0)}
	told := []ID{{Step: 16, Plan: "p"}, {Step: 16, Plan: "p"}, {Step: 8, Plan: "p"}}
	if got := steps(Told(own, told)); !slices.Equal(got, []uint64{16, 8}) {
		t.Errorf("complete are %v", got)
	}
}

func TestWhoTrainsUnderThePlanThatTheLogTookLastMayRemove(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	older, newer := Begun{"p", at(1)}, Begun{"q", at(2)}
	for name, c := range map[string]struct {
		history History
		begun   []Begun
		want    bool
	}{
		"nobody has begun":                        {History{Plan: "p", Logged: at(1)}, nil, false},
		"it has begun itself":                     {History{Plan: "p", Logged: at(1)}, []Begun{older}, false},
		"a later plan has begun":                  {History{Plan: "p", Logged: at(1)}, []Begun{older, newer}, true},
		"it is of the later plan":                 {History{Plan: "q", Logged: at(2)}, []Begun{older, newer}, false},
		"the clock was set back since":            {History{Plan: "r", Parent: "q", Logged: at(1)}, []Begun{newer}, false},
		"another log has the same plan since":     {History{Plan: "q", Logged: at(2)}, []Begun{{"q", at(9)}}, false},
		"it heard its plan of the log before":     {History{Plan: "q", Logged: at(2)}, []Begun{{"r", at(3)}, {"q", at(9)}}, false},
		"a plan of a new log follows that is one": {History{Plan: "q", Logged: at(2)}, []Begun{{"q", at(9)}, {"first", at(10)}}, true},
	} {
		if got := c.history.IsOutdone(c.begun); got != c.want {
			t.Errorf("%s: outdone is %t", name, got)
		}
	}
}

func TestAPartMayBeOfTheNewestCompleteSnapshotUnlessANewerOneIsKnownOrItsStepsWereUndone(t *testing.T) {
	for name, c := range map[string]struct {
		part     Part
		complete []ID
		history  History
		want     bool
	}{
		"nothing is known":                {part(8, "a"), nil, trained, true},
		"it is newer":                     {part(16, "a"), []ID{{8, "p"}}, trained, true},
		"it is older":                     {part(8, "a"), []ID{{16, "p"}}, trained, false},
		"it is that":                      {part(16, "a"), []ID{{16, "p"}}, trained, false},
		"it was left, and a new one is":   {part(48, "a"), []ID{{30, "q"}}, again(27), false},
		"it was left, and nothing counts": {part(48, "a"), []ID{{40, "p"}}, again(27), true},
		"it was not written to its end":   {torn(part(16, "a")), []ID{{8, "p"}}, trained, false},
		"steps were undone before it":     {anew(part(6, "a")), []ID{{9, "p"}}, since(9), true},
		"a newer one of its plan is":      {anew(part(6, "a")), []ID{{9, "q"}}, since(9), false},
	} {
		if got := IsOpen(c.part, c.complete, c.history); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestWhatIsCompleteIsNamedThoughManyNewerOnesAreNot has a disk that takes long: of twenty newer snapshots none is complete yet.
func TestWhatIsCompleteIsNamedThoughManyNewerOnesAreNot(t *testing.T) {
	var readable []ID
	for step := range uint64(30) {
		readable = append(readable, ID{Step: step, Plan: "p"})
	}
	told := map[string][]ID{"disk": {readable[9], readable[8]}, "remote": {readable[4], {Step: 2, Plan: "of a disk that is gone"}}}
	if named := steps(Named(readable, told, 6)); !slices.Equal(named, []uint64{29, 28, 27, 9, 8, 4}) {
		t.Errorf("it names %v", named)
	}
	if named := steps(Named(readable[:3], told, 6)); !slices.Equal(named, []uint64{2, 1, 0}) {
		t.Errorf("it names %v", named)
	}
}
