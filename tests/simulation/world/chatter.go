package world

import (
	"time"

	"github.com/reknit/reknit/events"
)

// chatter is how much is said. It follows from what happens to a cluster, and is bounded by that: machines that answer each other without
// an end break no other rule.
type chatter struct {
	since  time.Duration     // the minute that is counted began
	said   map[utterance]int // in that minute
	bytes  int               // likewise, of the log
	faults [2]int            // before that minute, and before the one before
	mended int               // faults before all was mended; negative: it is not
	opened int               // negotiations since then
	loud   bool              // too much was found
}

// utterance is a kind that one speaker says.
type utterance struct {
	who  string
	kind events.Kind
}

// In 1,000 seeds nobody said more of one kind in a minute than 43, or 80 of what links carry, of which there are more the more nodes there
// are; the negotiator opened 32 negotiations at most, and 6 once all was mended; and the log grew by 80 kB for each node. Twice as much and
// more is too much. Each fault explains more.
const (
	mostSaid      = 96 // of one kind in a minute, and
	saidPerNode   = 24 // for each node
	mostOpened    = 64 // negotiations in a minute
	mostMended    = 16 // negotiations once all was mended
	byFault       = 8  // of each of these, for each fault in that time
	bytesPerNode  = 256 << 10
	bytesPerFault = 16 << 10 // and node
)

// noteSaid counts what a stream has stored, and finds what is said too often. A node that lies is outside all bounds, and so is who answers
// it. Users say what they like.
func (w *World) noteSaid(event events.Event) {
	c, said := &w.chatter, utterance{event.Source, event.Kind}
	if w.now >= c.since+time.Minute || c.said == nil {
		c.since, c.bytes, c.faults, c.said = w.now, 0, [2]int{w.faults, c.faults[0]}, map[utterance]int{}
	}
	c.said[said]++
	c.bytes += len(event.Data)
	c.opened += opened(event)
	if w.lies || c.loud || event.Source == "/user" {
		return
	}
	faults := w.faults - c.faults[1]
	most, bytes := mostSaid+saidPerNode*len(w.nodes)+byFault*faults, (bytesPerNode+bytesPerFault*faults)*len(w.nodes)
	switch {
	case c.said[said] > most:
		w.violation("%s says %s more than %d times within a minute", said.who, said.kind, most)
	case opened(event)*c.said[said] > mostOpened+byFault*faults:
		w.violation("%d negotiations are opened within a minute", c.said[said])
	case c.mended >= 0 && c.opened > mostMended+byFault*(w.faults-c.mended):
		w.violation("%d negotiations are opened since all was mended", c.opened)
	case c.bytes > bytes:
		w.violation("the log grows by more than %d bytes within a minute", bytes)
	default:
		return
	}
	c.loud = true
}

// opened is how many negotiations an event opens.
func opened(event events.Event) int {
	if event.Kind == events.NegotiationOpened {
		return 1
	}
	return 0
}
