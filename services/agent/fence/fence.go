// Package fence says when a script may run that knows nothing of the agent (reknit agent run --unchanged), and writes files: not beside one
// of an older plan that the agent knows of, that may still run, and that can be asked.
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
