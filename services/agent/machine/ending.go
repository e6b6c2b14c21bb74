package machine

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

const (
	// endEvery is how often a node tells that training is complete for it, until it hears that it is for all: a negotiator
	// that was being exchanged may not have heard it. While 1,000 nodes wait, that is 17 messages a second.
	endEvery = time.Minute
	// mostEnds is how often it tells so again while nothing is negotiated and nobody is waited for. Then nobody will answer:
	// steps end for all together, and an hour is longer than a script saves its model after the last one.
	mostEnds = 60
)

// ending is the word that training is complete for this node.
type ending struct {
	word    events.Digests
	at      time.Time // it was told last
	again   int       // times
	unheard int       // of these, the last in a row while nothing was negotiated and nobody was waited for
}

// Digested returns what tells the digests of the units that the node trains, after so many steps; final ones end
// training.
func (m *Machine) Digested(now time.Time, step uint64, final bool, units []events.UnitDigest) events.Event {
	word := events.Digests{
		Node: m.settings.Node, Incarnation: m.incarnation, Generation: m.generation(), Step: step, Final: final, Units: units,
	}
	if final {
		m.ending = &ending{word: word, at: now}
	}
	return m.sayDigests(now, word, 0)
}

func (m *Machine) sayDigests(now time.Time, word events.Digests, again int) events.Event {
	reason := fmt.Sprintf("%s-%d-%d-%t", m.incarnation, word.Generation, word.Step, word.Final)
	if again > 0 {
		reason += fmt.Sprintf("-%d", again)
	}
	return m.speaker.First(now, reason, events.TrainingDigested, m.settings.Node, &word)
}

// DigestedAgain tells once more that training is complete for this node, where it is time. It is to be called now and then
// while the hub can be reached. It ends the membership of a node to which nobody has answered for long.
func (m *Machine) DigestedAgain(now time.Time) []Action {
	e := m.ending
	if e == nil || m.membership == over || m.membership == givenUp || e.word.Generation != m.generation() || now.Sub(e.at) < endEvery {
		return nil
	}
	e.at, e.word.Step = now, m.done // a script whose steps are not known stands at another one by now, as the others do
	e.again++
	if e.unheard++; m.negotiation != nil || m.waits.Reason != "" {
		e.unheard = 0
	}
	if e.unheard > mostEnds {
		m.end(End{Complete: true, Reason: fmt.Sprintf("the last step is made here, and for %v nobody has said that the job is "+
			"complete, nor that anybody is waited for", mostEnds*endEvery)})
	} else {
		m.do(Say{m.sayDigests(now, e.word, e.again)})
	}
	return m.act()
}
