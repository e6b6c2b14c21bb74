package machine

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/merit"
)

// failures are what a node is remembered by that failed lately.
type failures struct {
	Count  float64   `json:"count"`            // less those that it lived down
	Last   time.Time `json:"last"`             // by the log's clock
	Unkept int       `json:"unkept,omitempty"` // how often it had asked for time, and did not answer in it
	Sound  bool      `json:"sound,omitempty"`  // it took part for long before it failed
}

// noteFailure remembers that a node failed, so many times at once, after it took part for so many seconds.
func (m *Machine) noteFailure(node string, now time.Time, lived, times float64) {
	for other, failed := range m.state.Failed {
		if merit.Forgotten(now.Sub(failed.Last).Seconds()) {
			delete(m.state.Failed, other)
		}
	}
	before := m.state.Failed[node]
	m.state.Failed[node] = failures{
		Count: merit.After(before.Count, now.Sub(before.Last).Seconds(), lived, times), Last: now, Unkept: before.Unkept,
		Sound: before.Sound || !merit.Young(lived, m.stepSeconds()),
	}
	if len(m.state.Failed) > merit.MostNodes {
		oldest := node
		for other, failed := range m.state.Failed {
			if last := m.state.Failed[oldest].Last; failed.Last.Before(last) || failed.Last.Equal(last) && other < oldest {
				oldest = other
			}
		}
		delete(m.state.Failed, oldest)
	}
}

// lived returns for how many seconds a node has taken part.
func (m *Machine) lived(node string, now time.Time) float64 {
	member := m.state.Members[node]
	if member == nil {
		return 0
	}
	return now.Sub(member.Since).Seconds()
}

// takeTurn has a node that failed again and again wait, and says until when; a node that need not wait is told nothing.
// A cluster that waits for the node takes it at once, and so does one that has no plan to lose or nobody to train it.
func (m *Machine) takeTurn(node string) {
	failed := m.state.Failed[node]
	wait := merit.Wait(failed.Count)
	reason := fmt.Sprintf("it failed %.0f times lately: who fails again and again waits longer each time", failed.Count)
	if merit.Forgotten(m.cause.Logged.Sub(failed.Last).Seconds()) {
		wait, failed = 0, failures{}
	}
	if others, of := m.failedStarts(m.state.Joiners[node], m.cause.Logged); !failed.Sound && others > wait {
		wait, reason = others, "processes "+of+" fail again and again soon after they come: those that come wait longer each time"
	}
	nobody := m.state.Hold.Active && len(m.state.Members) == 0
	if wait == 0 || m.state.Plan == nil || nobody || m.awaits(node) || m.isExpected(node) {
		return
	}
	joiner := m.state.Joiners[node]
	joiner.NotBefore = m.cause.Logged.Add(seconds(wait))
	m.say(events.JoinDelayed, node, &events.JoinDelay{
		Node: node, Incarnation: joiner.Incarnation, Seconds: wait,
		Reason: reason,
	})
}
