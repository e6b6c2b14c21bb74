package main

// Trained is how far a training loop came.
type Trained struct {
	Steps   int
	Seconds float64
}

// idle is how much longer the steps of all trainers took in all than as many undisturbed ones.
func idle(undisturbed, disturbed []Trained) float64 {
	seconds := 0.0
	for i, now := range disturbed {
		seconds += now.Seconds - float64(now.Steps)*undisturbed[i].Seconds/float64(undisturbed[i].Steps)
	}
	return seconds
}
