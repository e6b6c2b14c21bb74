package protocol

import "slices"

// How long somebody is waited for follows from what is known: how long a step takes, what a move was predicted to take,
// what a node says that it needs. The settings are the least. So no model is too large for them, and whoever hangs is
// found.
//
//   - An answer may take three steps: a node may be in a step that it cannot interrupt.
//   - Who says that it needs longer, and how long, has that time.
//   - A transfer may take three times as long as predicted, and three steps more: it begins where all have come to the stop
//     step, which they promised up to two steps ahead.
//   - Each round in which nothing came of a wait makes the next one twice as long.
const (
	patientSteps  = 3
	transferSlack = 3
	longestStep   = 3600.0 // seconds; a node that tells of a longer one is not believed
)

// UsualStep returns how long a step takes: as the plan in force predicts or, where that is longer, as the nodes
// measured. A step ends for all at one time, so that they tell nearly the same; fewer than half of them cannot make it
// longer.
func UsualStep(predicted float64, measured []float64) float64 {
	if len(measured) > 0 {
		sorted := slices.Sorted(slices.Values(measured))
		predicted = max(predicted, sorted[(len(sorted)-1)/2])
	}
	return min(predicted, longestStep)
}

// ServiceSeconds is how long a service may take to answer that left so many questions before unanswered: five minutes at
// first, far longer than a restart or any search takes.
func ServiceSeconds(unanswered int) float64 { return Grown(300, unanswered) }

// AnswerSeconds is how long a member may take to answer.
func AnswerSeconds(least, step float64) float64 { return max(least, patientSteps*step) }

// TransferSeconds is how long units may take to move.
func TransferSeconds(least, predicted float64) float64 { return max(least, transferSlack*predicted) }

// promisedSteps is how many steps ahead members promise to stop, at most.
const promisedSteps = 2

// DrainSeconds is how long the others need a node that leaves, where all train on to the step at which they stop.
func DrainSeconds(step, transition float64) float64 { return promisedSteps*step + transition }

// ComeSeconds is how long members may take to come to the step at which all stop.
func ComeSeconds(step float64) float64 { return patientSteps * step }

// mostDelay is how many seconds a member may take that said it is busy and not for how long.
const mostDelay = 660.0

// Excused reports whether a member may still take the time that it said it needs, in seconds, zero where it does not
// know. It asked for it so many seconds ago, in this negotiation or in one that this one followed.
func Excused(needs, ago float64) bool {
	if needs == 0 {
		needs = mostDelay
	}
	return ago < min(needs, patientSteps*longestStep)
}

const mostDoublings = 6

// Grown returns a wait that doubles with each round in which nothing came of it, up to 64 times: who waits for long
// writes little.
func Grown(seconds float64, round int) float64 {
	return seconds * float64(int(1)<<min(round, mostDoublings))
}
