package chameleon

// Throughput is Chameleon's objective (IV-A): samples a second, times the part of the time to the next failure that is
// left after the transition. It is zero where the transition takes longer than that.
func Throughput(samples int, stepSeconds, transitionSeconds, betweenFailuresSeconds float64) float64 {
	left := max(0, 1-transitionSeconds/betweenFailuresSeconds)
	return float64(samples) / stepSeconds * left
}

// RerouteSeconds is Chameleon's time of a step while the survivors of each stage share its failed workers'
// micro-batches, parts of them too (IV-A): (max over stages of M*D/(D-f) + P - 1) * (forward + backward), for D
// pipelines of P equal stages and M micro-batches, f of whose workers failed. Every stage has a survivor.
func RerouteSeconds(pipelines, microBatches int, failedPerStage []int, forwardSeconds,
	backwardSeconds float64) float64 {
	worst := 0.0
	for _, failed := range failedPerStage {
		worst = max(worst, float64(microBatches*pipelines)/float64(pipelines-failed))
	}
	return (worst + float64(len(failedPerStage)-1)) * (forwardSeconds + backwardSeconds)
}
