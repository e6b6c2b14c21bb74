package torch

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// mostApart is how far sums of a state may be from those of an undisturbed one, relative to the greater of 1 and what they are. Rounding
// came to 1.1e-6 over 4,008 steps.
const mostApart = 1e-4

// CompareReplicas fails where workers that have made as many updates do not tell the same state, to the bit: it names the first one.
func CompareReplicas(steps []Step) error {
	first := map[float64]Step{} // by how many updates
	var wrong []Step
	for _, step := range steps {
		if len(step.State) == 0 {
			continue
		}
		before, known := first[step.State[0]]
		if !known {
			first[step.State[0]] = step
		} else if !slices.Equal(before.State, step.State) {
			wrong = append(wrong, step)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	one := slices.MinFunc(wrong, func(a, b Step) int { return int(a.State[0] - b.State[0]) })
	other := first[one.State[0]]
	return fmt.Errorf("%d states differ between workers, the first after step %.0f: %s has %v, and %s %v", len(wrong), one.State[0],
		other.Worker, other.State, one.Worker, one.State)
}

// CompareStates fails where a state is further from the undisturbed one of as many updates than rounding takes it: it names the first one.
func CompareStates(healed, undisturbed []Step) error {
	right := map[float64]Step{}
	for _, step := range undisturbed {
		if len(step.State) > 0 {
			right[step.State[0]] = step
		}
	}
	var wrong *Step
	greatest, compared := 0.0, 0
	for _, step := range healed {
		if len(step.State) == 0 || len(right[step.State[0]].State) != len(step.State) {
			continue
		}
		compared++
		apart := apart(step.State, right[step.State[0]].State)
		greatest = max(greatest, apart)
		if apart > mostApart && (wrong == nil || step.State[0] < wrong.State[0]) {
			wrong = &step
		}
	}
	fmt.Printf("%d states of parameters and moments; the greatest difference of a sum is %.1e\n", compared, greatest)
	switch {
	case compared == 0:
		return errors.New("states: expected some of as many updates as the undisturbed ones")
	case wrong != nil:
		return fmt.Errorf("the state of %s after step %.0f is %v: expected %v",
			wrong.Worker, wrong.State[0], wrong.State, right[wrong.State[0]].State)
	}
	return nil
}

// apart returns the greatest distance of two sums, relative to the greater of 1 and the second.
func apart(a, b []float64) (greatest float64) {
	for i := range a {
		greatest = max(greatest, math.Abs(a[i]-b[i])/max(1, math.Abs(b[i])))
	}
	return greatest
}
