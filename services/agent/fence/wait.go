package fence

import "time"

const (
	// silentRounds in a row are those after which a node is gone: one lost packet is no end of a script.
	silentRounds = 3
	// mostAnswering is how many of those that answered are asked again: the others would be waited for after them.
	mostAnswering = 3
)

// Answer is what came of asking whether a node's agent runs.
type Answer int

// The answers. A host refuses a connection if nobody listens there: the agent has ended, and its script with it.
const (
	Silent Answer = iota
	Refuses
	Answers
)

// Wait is that for scripts that may still run. Its caller asks in rounds, HearEvery apart, until it is over. An agent that answers may
// have a script that runs: a node that the hub does not hear does not know that another plan is in force.
type Wait struct{ absent []asked }

type asked struct {
	Absent
	answers bool // in the last round in which it was asked
	silent  int  // rounds in a row
}

// Over reports whether nobody is waited for any more.
func (w *Wait) Over(now time.Time) bool {
	for _, one := range w.absent {
		if one.Until.After(now) && one.silent < silentRounds {
			return false
		}
	}
	return true
}

// Round returns whom to ask next: all that did not answer the last time, and some of those that did.
func (w *Wait) Round(now time.Time) (ask []Absent) {
	answering := 0
	for _, one := range w.absent {
		if !one.Until.After(now) {
			continue
		}
		if one.answers {
			answering++
		}
		if !one.answers || answering <= mostAnswering {
			ask = append(ask, one.Absent)
		}
	}
	return ask
}

// Hear takes a node's answer in a round.
func (w *Wait) Hear(node string, answer Answer) {
	for i := range w.absent {
		one := &w.absent[i]
		if one.Node != node {
			continue
		}
		switch one.answers = answer == Answers; answer {
		case Answers:
			one.silent = 0
		case Silent:
			one.silent++
		case Refuses:
			one.silent = silentRounds
		}
	}
}

// Answering returns those that answered and are waited for.
func (w *Wait) Answering(now time.Time) (answering []Absent) {
	for _, one := range w.absent {
		if one.answers && one.Until.After(now) {
			answering = append(answering, one.Absent)
		}
	}
	return answering
}
