// Package rest tells when a script that knows nothing of its agent (reknit agent run --unchanged) does nothing any more, by what its
// processes have used. It needs nothing from the script, and so it sees no script that hangs in a loop, or in waits that spin (NCCL's do):
// nobody can tell these from one that trains.
package rest

import "time"

const (
	// LookEvery is how often an agent looks at what its script has used.
	LookEvery = 5 * time.Second
	// leastShare of one processor is work. Threads that look at a clock use less: a PyTorch process that waits in a gloo collective a
	// thousandth.
	leastShare = 0.01
	// atLeast is how long a rest is that is told, and timesUsual the longest before: some wait while one evaluates.
	atLeast    = time.Minute
	timesUsual = 3
	// atMost is when it is told whatever was before: gloo gives a wait up after as long (PyTorch's default).
	atMost = 30 * time.Minute
)

// Used is what the processes of a script have used since they were started.
type Used struct {
	Processor time.Duration // of all processors
	Writes    uint64        // calls that wrote, to files, pipes and terminals
}

// Watch knows for how long a script rests. The zero value has seen none.
type Watch struct {
	last  Used
	at    time.Time     // of the last look; zero: none
	rests time.Duration // since the script was seen to work
	usual time.Duration // the longest rest that ended by itself, of scripts before, too
}

// Usual returns the longest rest that ended by itself.
func (w *Watch) Usual() time.Duration { return w.usual }

// Begin takes that the script is started again.
func (w *Watch) Begin() { *w = Watch{usual: w.usual} }

// Look takes what the script has used, and returns for how long it rests, where that is longer than usual; else zero. A time in which
// nobody looked counts as two looks at most: the agent stood still, and perhaps its script with it.
func (w *Watch) Look(now time.Time, used Used) (rests time.Duration) {
	isFirst, passed := w.at.IsZero(), min(now.Sub(w.at), 2*LookEvery)
	worked := used.Writes != w.last.Writes || used.Processor < w.last.Processor || // one of the processes has ended
		used.Processor-w.last.Processor >= time.Duration(leastShare*float64(passed))
	w.last, w.at = used, now
	switch {
	case isFirst:
		return 0
	case worked:
		w.usual, w.rests = max(w.usual, w.rests), 0
		return 0
	}
	w.rests += passed
	if w.rests < min(max(atLeast, timesUsual*w.usual), atMost) {
		return 0
	}
	return w.rests
}
