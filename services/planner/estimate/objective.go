package estimate

import "math"

// ExpectedThroughput is the samples expected until the next failure where failures are memoryless, divided by the
// mean time between them: (samples / step) * exp(-transition / between). It equals Chameleon's objective (IV-A),
// (samples / step) * max(0, 1 - transition / between), to first order, and never ties two hopeless choices at zero.
func ExpectedThroughput(samples int, stepSeconds, transitionSeconds, betweenFailuresSeconds float64) float64 {
	return float64(samples) / stepSeconds * math.Exp(-transitionSeconds/betweenFailuresSeconds)
}

// Return is a plan that may be taken up again at some time, because lost nodes are expected back.
type Return struct {
	AfterSeconds      float64
	StepSeconds       float64
	TransitionSeconds float64
}

// ThroughputWithReturn is ExpectedThroughput of a plan that gives way to another one at a known time, where that pays:
// (samples / step) * (exp(-transition / between) - exp(-then / between)), and from then on the better of the two, the
// other one after its transition. Then is the return, or the end of the transition where that is later.
func ThroughputWithReturn(samples int, stepSeconds, transitionSeconds float64, back Return,
	betweenFailuresSeconds float64) float64 {
	then := max(back.AfterSeconds, transitionSeconds)
	stay := ExpectedThroughput(samples, stepSeconds, then, betweenFailuresSeconds)
	until := ExpectedThroughput(samples, stepSeconds, transitionSeconds, betweenFailuresSeconds) - stay
	return until + max(stay,
		ExpectedThroughput(samples, back.StepSeconds, then+back.TransitionSeconds, betweenFailuresSeconds))
}

// RingSeconds is the time of a ring all-reduce of so many bytes among so many holders: each sends and receives
// 2(g-1)/g of the bytes, in 2(g-1) messages.
func RingSeconds(bytes int64, holders int, bytesPerSecond, latencySeconds float64) float64 {
	if holders < 2 {
		return 0
	}
	messages := 2 * float64(holders-1)
	return messages/float64(holders)*float64(bytes)/bytesPerSecond + messages*latencySeconds
}
