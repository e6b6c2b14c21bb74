package world

import (
	"slices"

	"github.com/reknit/reknit/tests/invariants"
)

// judgeEvery is after how many events the log is judged while a run goes on. A long log is judged once it is longer by a
// quarter.
const (
	judgeEvery = 8
	longLog    = 4096 // events
)

func (w *World) judgeAfter() int {
	if length := len(w.hub.log[w.hub.Events]); length > longLog {
		return length / 4
	}
	return judgeEvery
}

// judge compares all that is trained with the oracle, and the log with what must never happen, at the end of a run.
func (w *World) judge() {
	for _, n := range w.nodes {
		if n.process == nil {
			continue
		}
		for unit, trained := range n.process.state.trained {
			if newest := n.process.state.kept[unit]; trained && !w.explains(unit, newest[0]) {
				w.violation("%s has unit %d at step %d other than undisturbed training", n.name, unit, newest[0].step)
			}
		}
	}
	w.checkSamples()
	if !w.longer() {
		w.judgeLog(true)
	}
}

// explains reports whether a version is what undisturbed training makes, or what comes of a copy that the script
// spoiled.
func (w *World) explains(unit int, v version) bool {
	if v.value == w.job.value(unit, v.step) {
		return true
	}
	for _, stain := range w.stains[unit] {
		for stain.step < v.step {
			stain = w.job.next(len(w.job.lives)-1, stain)
		}
		if stain == v {
			return true
		}
	}
	return false
}

// judgeOften judges the log as it grows, where the negotiator has said all that follows from what it heard.
func (w *World) judgeOften() {
	negotiator := w.services["negotiator"].last()
	if w.longer() || w.unjudged < w.judgeAfter() || negotiator == nil || !negotiator.life.CaughtUp() {
		return
	}
	w.judgeLog(false)
}

// ofOneLog are what holds within a log and not over two: nobody closes what was open in one that is gone, and in an empty one a negotiator
// counts its holds from the first again. A step that broke is none in a log that knows of no plan yet.
var ofOneLog = []string{invariants.Ended.Says, invariants.Broken.Says, invariants.Answered.Says, invariants.Identified.Says}

// judgeLog tells what is wrong with the log, until something is. A request may wait for its answer until the run ends.
func (w *World) judgeLog(ended bool) {
	w.unjudged = 0
	if w.misled {
		return
	}
	for _, violation := range invariants.Of(w.hub.log[w.hub.Events], w.hub.log[w.hub.Plans]).Check() {
		broken := len(w.stains) > 0 && violation.Invariant == invariants.OneDigest.Says // by the script
		unread := w.emptied && violation.Invariant == invariants.Spoken.Says            // a message whose payload is gone
		lied := w.lies && invariants.RestsOnWords(violation.Invariant)
		gone := w.wiped && slices.Contains(ofOneLog, violation.Invariant) ||
			w.unknown && violation.Invariant == invariants.Stored.Says // the log knows no snapshots of plans of which nobody told it
		if broken || unread || lied || gone || !ended && violation.Invariant == invariants.Answered.Says {
			continue
		}
		w.misled = true
		w.violation("%s", violation)
	}
}

// judgeStains finds a copy that the script spoiled and that trains on beside a majority of right ones. Nobody can tell who is right about
// parameters whose optimizer state is partitioned: the majority may have copied what is wrong. A node that has its copy since then may have
// it from any of them, and is no second voice.
func (w *World) judgeStains() {
	for unit := range w.stains {
		if w.job.OptimizerPartitions > 0 && unit < len(w.job.Layers) {
			continue
		}
		right, wrong := 0, []string{}
		for _, n := range w.nodes {
			if n.process == nil || !n.process.state.trained[unit] {
				continue
			}
			switch newest := n.process.state.kept[unit][0]; {
			case newest.value != w.job.value(unit, newest.step):
				wrong = append(wrong, n.name)
			case w.witnesses[unit][n.process]:
				right++
			}
		}
		if len(wrong) > 0 && right > len(wrong) {
			w.violation("%v train unit %d on as it was spoiled, and %d others have it right", wrong, unit, right)
		}
	}
}
