package profile

import (
	"maps"
	"testing"
)

func TestAStepIsAsLongAsTheMedianOfThoseSayThatTold(t *testing.T) {
	paces := Paces{}
	if got, _ := paces.StepSeconds(); got != 0 {
		t.Errorf("nobody told, and a step takes %v s", got)
	}
	paces.Take("n1", 1000, 1)
	paces.Take("n2", 3, 1)
	paces.Take("n3", 2, 0)
	if got, _ := paces.StepSeconds(); got != 3 {
		t.Errorf("a step takes %v s, expected 3 as the median says", got)
	}
	if got := paces.Passes(); !maps.Equal(got, map[string]float64{"n1": 1, "n2": 1}) {
		t.Errorf("passes %v", got)
	}
}

func TestAStepAtItsLeastHasPassesOfNowAndTheLeastBesideThem(t *testing.T) {
	for what, test := range map[string]struct {
		told        [][2]float64 // seconds of a step, and of its passes
		last, least float64
	}{
		"steps as always":              {[][2]float64{{2, 1.5}}, 2, 2},
		"a link became slow":           {[][2]float64{{2, 1.5}, {18, 1.5}}, 18, 2},
		"it was slow and is not":       {[][2]float64{{18, 1.5}, {2, 1.5}}, 2, 2},
		"the machine became slow":      {[][2]float64{{2, 1.5}, {3.5, 3}}, 3.5, 3.5},
		"both did":                     {[][2]float64{{2, 1.5}, {20, 3}}, 20, 3.5},
		"nobody tells of passes":       {[][2]float64{{2, 0}, {18, 0}}, 18, 2},
		"passes take longer than told": {[][2]float64{{2, 9}}, 2, 2},
	} {
		paces := Paces{}
		for _, told := range test.told {
			paces.Take("n1", told[0], told[1])
		}
		if last, least := paces.StepSeconds(); last != test.last || least != test.least {
			t.Errorf("%s: %v s, and %v s at least: expected %v and %v", what, last, least, test.last, test.least)
		}
	}
}
