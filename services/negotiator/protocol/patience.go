package protocol

import (
	"math"
	"slices"
)

// How long somebody is waited for follows from what is known: how long a step takes, what a move was predicted to take,
// what a node says that it needs. The settings are the least. So no model is too large for them, and whoever hangs is
// found.
//
//   - An answer may take three steps: a node may be in a step that it cannot interrupt.
//   - Who says that it needs longer has that time, as far as what the others know explains it.
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

const (
	firstPatience = 660.0 // seconds; a first step may compile, for which agents take ten minutes
	stepPatience  = 30.0  // seconds, that agents take to give up any step
	patientPauses = 2     // of the longest so far: every so many steps a trainer may evaluate or write a file
)

// Record is what a cluster knows of how long one of its members may take. Its own word is no part of it.
type Record struct {
	Stepped bool      // it has made a step under the plan in force: it has compiled, and taken up its units
	Step    float64   // seconds of a usual step
	Pauses  []float64 // seconds between two steps, the longest so far, as each member measured; they tell nearly the same
	Unkept  int       // how often it had time, and did not answer
}

// Excuse returns for how many seconds a member is waited for that says it needs so many, zero where it does not know. Each time
// that it did not answer in its time halves it: one node's word would else have all others stand for as long as it likes.
func (r Record) Excuse(needs float64) float64 {
	known := max(stepPatience, patientSteps*r.Step, patientPauses*UsualStep(0, r.Pauses))
	if !r.Stepped {
		known = max(known, firstPatience)
	}
	if needs > 0 {
		known = min(known, needs)
	}
	return math.Ldexp(known, -r.Unkept)
}

// MostDoublings is how often a wait becomes twice as long at most.
const MostDoublings = 6

// Grown returns a wait that doubles with each round in which nothing came of it, up to 64 times: who waits for long
// writes little.
func Grown(seconds float64, round int) float64 {
	return seconds * float64(int(1)<<min(round, MostDoublings))
}
