package machine

import (
	"maps"
	"strings"

	"github.com/reknit/reknit/events"
)

func (m *Machine) connect(cause events.Event, request events.LinkRequest) []events.Event {
	if refused := m.refuseStrangers(cause, request); refused != nil {
		return refused
	}
	if !m.state.Cut[pairKey(request.From, request.To)] {
		return m.refuse(cause, request.From, "the link to "+request.To+" is in use already")
	}
	delete(m.state.Cut, pairKey(request.From, request.To))
	return m.take(cause, events.Change{Kind: events.ChangeConnect, Node: request.From, Peer: request.To})
}

func (m *Machine) disconnect(cause events.Event, request events.LinkRequest) []events.Event {
	if refused := m.refuseStrangers(cause, request); refused != nil {
		return refused
	}
	if m.state.Cut[pairKey(request.From, request.To)] {
		return m.refuse(cause, request.From, "the link to "+request.To+" is disconnected already")
	}
	m.state.Cut[pairKey(request.From, request.To)] = true
	return m.take(cause, events.Change{Kind: events.ChangeDisconnect, Node: request.From, Peer: request.To})
}

func (m *Machine) refuseStrangers(cause events.Event, request events.LinkRequest) []events.Event {
	for _, end := range []string{request.From, request.To} {
		if m.state.Members[end] == nil {
			return m.refuse(cause, request.From, `a link of `+end+`: expected two active nodes`)
		}
	}
	return nil
}

func (m *Machine) linkMeasured(_ events.Event, measured events.Measurement) []events.Event {
	link := m.state.Links[linkKey(measured.From, measured.To)]
	link.Measurement = measured
	m.state.Links[linkKey(measured.From, measured.To)] = link
	return nil
}

func (m *Machine) linkLost(cause events.Event, lost events.LinkState) []events.Event {
	if m.state.Members[lost.From] == nil || m.state.Members[lost.To] == nil {
		return nil
	}
	if !m.markLost(lost, true) {
		return nil
	}
	return m.take(cause, events.Change{Kind: events.ChangeLinkLost, Node: lost.From, Peer: lost.To})
}

func (m *Machine) linkRestored(cause events.Event, restored events.LinkState) []events.Event {
	if !m.markLost(restored, false) || m.state.Members[restored.From] == nil || m.state.Members[restored.To] == nil {
		return nil
	}
	return m.take(cause, events.Change{Kind: events.ChangeRestored, Node: restored.From, Peer: restored.To})
}

// markLost sets the state of a link and reports whether that is news.
func (m *Machine) markLost(state events.LinkState, lost bool) bool {
	key := linkKey(state.From, state.To)
	link := m.state.Links[key]
	if link.Lost == lost {
		return false
	}
	link.From, link.To, link.Lost = state.From, state.To, lost
	m.state.Links[key] = link
	return true
}

// forgetLinks drops what is known of links to nodes that are gone, so that churn leaves nothing behind.
func (m *Machine) forgetLinks() {
	gone := func(key string) bool {
		from, to, _ := strings.Cut(key, " ")
		return m.state.known(from) == nil || m.state.known(to) == nil
	}
	maps.DeleteFunc(m.state.Links, func(key string, _ events.Link) bool { return gone(key) })
	maps.DeleteFunc(m.state.Cut, func(key string, _ bool) bool { return gone(key) })
}
