// Package merit says for how long a node that failed again and again waits for its place. Each of its failures has all others stop and
// begin anew, and so may each of its returns. It lives down a part of its failures in each second that it took part since.
//
//	failures, less those lived down, rounded   it waits for
//	1                                          nothing: whoever dies once is not punished
//	2, 3, 4, 5, ...                            1 s, 2 s, 4 s, 8 s, ...
//	11 and more                                5 min
package merit

import "math"

const (
	free      = 1       // failures that cost nothing
	firstWait = 1.0     // seconds
	mostWait  = 300.0   // seconds
	most      = 11      // failures that count: more would not make the wait longer, but the way back
	lifetime  = 1_800.0 // seconds in which a node that takes part lives down one failure
	window    = 7_200.0 // seconds after the last failure in which all are remembered
)

// MostNodes bounds how many nodes are remembered: a cluster whose processes have new names each time forgets the oldest.
const MostNodes = 4096

// After returns what a node is to be remembered by that failed so often before, by its last failure, so many seconds
// ago, and that took part for so long since. It fails now, so many times at once.
func After(before, ago, lived, times float64) float64 {
	if Forgotten(ago) {
		before = 0
	}
	return min(most, max(0, before-max(0, lived)/lifetime)+times)
}

// Wait returns for how many seconds a node that failed so often waits.
func Wait(failures float64) float64 {
	counted := math.Round(failures) - free
	if counted < 1 {
		return 0
	}
	return min(firstWait*math.Exp2(counted-1), mostWait)
}

// Forgotten reports whether a node whose last failure was so many seconds ago has a clean slate.
func Forgotten(ago float64) bool { return ago > window }

// A process that is named anew at each start has no failures of its own. So starts that failed count together for a host, a site and
// the cluster, where each came after the last one had failed. They make those wait only of whom nothing better is known, and not for
// long: whoever names another's host cannot keep it away.
const (
	youngSeconds = 60.0  // a process that failed within these, or three steps, of its place has failed to start
	youngSteps   = 3     // which tell of steps that take longer
	startsWindow = 600.0 // seconds after the last failed start in which all are remembered
	mostForOther = 60.0  // seconds
)

// The failed starts that cost nothing to others, more where more nodes are counted together.
const (
	FreeOfHost    = 1
	FreeOfSite    = 3
	FreeOfCluster = 5
)

// Young reports whether a process that took part for so many seconds failed to start.
func Young(lived, step float64) bool { return lived < max(youngSeconds, youngSteps*step) }

// AfterStart returns how many starts have failed in a row, of which there were so many before, the last one so many seconds ago.
func AfterStart(before, ago float64) float64 {
	if StartsForgotten(ago) {
		before = 0
	}
	return min(most, before+1)
}

// WaitForOthers returns for how many seconds a new node waits where so many starts failed, some of which cost nothing.
func WaitForOthers(failed, free float64) float64 { return min(Wait(failed-free+1), mostForOther) }

// StartsForgotten reports whether failed starts, the last of which was so many seconds ago, count no more.
func StartsForgotten(ago float64) bool { return ago > startsWindow }
