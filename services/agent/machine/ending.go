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
	// endQuiet is after how long it says that it waits for that. It waits for as long as it takes: who is silent is soon
	// missed, and a plan does without it; who lives may evaluate and save for hours, and a node that went meanwhile would
	// have that begun anew.
	endQuiet = 10 * time.Minute
)

const endWaits = "the last step is made here, and nobody says that the job is complete: others have yet to make it, or to end, or " +
	"no negotiator acts for the cluster; reknit status tells which"

// ending is the word that training is complete for this node.
type ending struct {
	word  events.Digests
	since time.Time // it was told first
	at    time.Time // it was told last
	again int       // times that one was told before, under whatever plan
}

// Digested returns what tells the digests of the units that the node trains, after so many steps; final ones end
// training.
func (m *Machine) Digested(now time.Time, step uint64, final bool, units []events.UnitDigest) events.Event {
	word := events.Digests{
		Node: m.settings.Node, Incarnation: m.incarnation, Generation: m.generation(), Step: step, Final: final, Units: units,
	}
	if !final {
		return m.sayDigests(now, word, 0)
	}
	again := 0
	if m.ending != nil {
		again = m.ending.again + 1 // no two have one id: the log would refuse the second where it has other units
	}
	m.ending = &ending{word: word, since: now, at: now, again: again}
	return m.sayDigests(now, word, again)
}

func (m *Machine) sayDigests(now time.Time, word events.Digests, again int) events.Event {
	reason := fmt.Sprintf("%s-%d-%d-%t", m.incarnation, word.Generation, word.Step, word.Final)
	if again > 0 {
		reason += fmt.Sprintf("-%d", again)
	}
	return m.speaker.First(now, reason, events.TrainingDigested, m.settings.Node, &word)
}

// DigestedAgain tells once more that training is complete for this node, where it is time. It is to be called now and then
// while the hub can be reached.
func (m *Machine) DigestedAgain(now time.Time) []Action {
	e := m.ending
	if e == nil || m.membership == over || m.membership == givenUp || e.word.Generation != m.generation() || now.Sub(e.at) < endEvery {
		return nil
	}
	if e.word.Step != m.done { // a script whose steps are not known stands at another one by now, as the others do
		e.word.Step, e.word.Units = m.done, nil // which are those of the step before
	}
	e.at = now
	e.again++
	m.do(Say{m.sayDigests(now, e.word, e.again)})
	if now.Sub(e.since) >= endQuiet && m.negotiation == nil && m.waits.Reason == "" {
		m.waits = Waits{Reason: endWaits, Since: e.since}
		m.do(m.waits)
	}
	return m.act()
}
