// Package fence says when a script may run that knows nothing of the agent (reknit agent run --unchanged), and writes files: never beside
// one of an older plan that may still run and can be asked.
package fence

import "time"

// A node that the hub does not hear, and that others reach, may be given up at any time: they start their scripts without it then. Its own
// script is stopped before: it would write beside theirs.
const (
	// HearEvery is how often the hub is asked whether it hears the node.
	HearEvery = time.Second
	// UnheardFor is how long a script runs on whose node the hub does not hear.
	UnheardFor = 20 * time.Second
	// Grace is what torchrun gives its workers between SIGTERM and SIGKILL (torch.distributed.elastic.multiprocessing).
	Grace = 30 * time.Second
	// Ended is after how long the script of a node has ended that the others do without.
	Ended = UnheardFor + 2*HearEvery + Grace
)

// Hearing is when the hub was last known to hear a node.
type Hearing struct {
	Last time.Time
	cut  bool // was told since
}

// CutOff notes whether the hub hears, and reports once each time that it has not heard for too long. A clock that was stopped
// with the process counts: the others did not wait for it.
func (h *Hearing) CutOff(now time.Time, hears bool, unheardFor time.Duration) bool {
	if hears {
		h.Last, h.cut = now, false
		return false
	}
	if h.cut || now.Sub(h.Last) < unheardFor {
		return false
	}
	h.cut = true
	return true
}

// Absent is a node whose script may still run although the others do without it.
type Absent struct {
	Node    string
	Address string    // where its agent answers
	Until   time.Time // its script has ended then, if the node runs at all
}

// Absentees returns the nodes whose scripts may still run when a plan of some members follows another: those that were absent before, and
// those of the crew of that other plan that the new one does not name. Its members hear of it, and end their scripts.
func Absentees(before, crew []Absent, named func(node string) bool, now time.Time) (absent []Absent) {
	for _, one := range append(before[:len(before):len(before)], crew...) {
		if one.Until.After(now) && !named(one.Node) {
			absent = append(absent, one)
		}
	}
	return absent
}
