package torch

import (
	"strings"
	"testing"
)

func told(worker string, state ...float64) Step { return Step{Worker: worker, State: state} }

func TestWorkersTellOneStateOfEachStepToTheBit(t *testing.T) {
	if err := CompareReplicas([]Step{told("a", 1, 5), told("b", 1, 5), told("a", 2, 6), {Worker: "b"}}); err != nil {
		t.Error(err)
	}
	err := CompareReplicas([]Step{
		told("a", 1, 5), told("b", 1, 5), told("a", 3, 7), told("b", 3, 7.5), told("a", 2, 6), told("b", 2, 6+1e-15),
	})
	want := "2 states differ between workers, the first after step 2: a has [2 6], and b [2 6.000000000000001]"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, expected %s", err, want)
	}
}

func TestAStateMayDifferFromAnUndisturbedOneByRounding(t *testing.T) {
	right := []Step{told("", 1, 5), told("", 2, 500)}
	if err := CompareStates([]Step{told("a", 2, 500+1e-2), told("b", 1, 5+1e-5)}, right); err != nil {
		t.Error(err)
	}
	for name, healed := range map[string][]Step{
		"the state of b after step 1 is [1 5.01]: expected [1 5]": {told("a", 2, 501), told("b", 1, 5.01), told("a", 1, 5)},
		"states: expected some of as many updates":                {told("a", 3, 5), {Worker: "b"}},
	} {
		if err := CompareStates(healed, right); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, expected %s", err, name)
		}
	}
}
