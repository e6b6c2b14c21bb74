package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// A user who asks for something of the whole cluster (a stop, a reset, the release of a step) watches what comes of it. If no negotiator
// works, the user does something else, such as starting the scripts again, and an answer hours later would strike another cluster than
// was meant. So a request counts for a minute by the hub's clock. The negotiator says that it has heard a request, and decides once
// it hears that back: the log tells how old the request was.

const (
	requestHolds = time.Minute
	// mostAsked bounds the requests whose age is not known yet.
	mostAsked = 16
)

// request is one of a user whose age is not known yet.
type request struct {
	ID    string       `json:"id"`
	Event events.Event `json:"event"`
}

// asked hears a request, and says so.
func (m *Machine) asked(cause events.Event) ([]events.Event, error) {
	if _, err := cause.Read(); err != nil {
		return nil, err
	}
	if len(m.state.Asked) >= mostAsked { // what a build before had answered is heard in silence: nothing ever tells its age
		m.state.Asked = slices.DeleteFunc(m.state.Asked, func(r request) bool { return cause.Logged.Sub(r.Event.Logged) > requestHolds })
	}
	if len(m.state.Asked) >= mostAsked {
		m.grant(fmt.Sprintf("%d requests wait for an answer already: ask again", mostAsked))
		return nil, nil
	}
	id := alarmID(asking, cause.Source, cause.ID)
	m.state.Asked = append(m.state.Asked, request{id, cause})
	m.say(events.NegotiationOverdue, id, &events.Overdue{Negotiation: id, Phase: asking})
	return nil, nil
}

// answer decides about a request, now that the log tells how old it is. The request is the cause of all that is said.
func (m *Machine) answer(overdue events.Overdue) {
	at := slices.IndexFunc(m.state.Asked, func(r request) bool { return r.ID == overdue.Negotiation })
	if overdue.Phase != asking || at < 0 {
		return
	}
	request, tooOld := m.state.Asked[at].Event, ""
	m.state.Asked = slices.Delete(m.state.Asked, at, at+1)
	if age := m.cause.Logged.Sub(request.Logged); age > requestHolds {
		tooOld = fmt.Sprintf("it was asked %.0f s before a negotiator heard it, and counts for %.0f s: if it is still wanted, ask again",
			age.Seconds(), requestHolds.Seconds())
	}
	request.Logged, request.Sequence = m.cause.Logged, m.cause.Sequence
	m.cause = request
	m.grant(tooOld)
}

// grant does what a user asks for, or refuses it for a reason.
func (m *Machine) grant(reason string) {
	payload, err := m.cause.Read()
	if err != nil {
		return // it was read when it was heard
	}
	switch request := payload.(type) {
	case *events.StopRequest:
		if reason == "" {
			m.stopRequested(*request)
			return
		}
		m.say(events.StopRefused, m.settings.Cluster, &events.StopRefusal{Reason: reason})
	case *events.ResetRequest:
		if reason == "" {
			m.resetRequested(*request)
			return
		}
		m.refuseReset(reason)
	case *events.ReleaseRequest:
		if reason == "" {
			m.releaseRequested(*request)
			return
		}
		m.refuseRelease(*request, reason)
	}
}
