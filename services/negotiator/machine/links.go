package machine

import (
	"fmt"
	"maps"
	"strings"

	"github.com/reknit/reknit/events"
)

func (m *Machine) connect(cause events.Event, request events.LinkRequest) []events.Event {
	if reason := m.cannot(request, false); reason != "" {
		return m.refuse(cause, refusalOf(events.ChangeConnect, request.From, reason))
	}
	delete(m.state.Cut, pairKey(request.From, request.To))
	return m.take(cause, events.Change{Kind: events.ChangeConnect, Node: request.From, Peer: request.To})
}

func (m *Machine) disconnect(cause events.Event, request events.LinkRequest) []events.Event {
	if reason := m.cannot(request, true); reason != "" {
		return m.refuse(cause, refusalOf(events.ChangeDisconnect, request.From, reason))
	}
	m.state.Cut[pairKey(request.From, request.To)] = true
	return m.take(cause, events.Change{Kind: events.ChangeDisconnect, Node: request.From, Peer: request.To})
}

// cutsLimit bounds what users may cut; a cut is remembered while its nodes come and go.
const cutsLimit = 4096

// cannot says why a link cannot be cut or used; empty where it can.
func (m *Machine) cannot(request events.LinkRequest, cut bool) string {
	for _, end := range []string{request.From, request.To} {
		if m.state.Members[end] == nil {
			return "a link of " + end + ": expected two active nodes"
		}
	}
	switch already := m.state.Cut[pairKey(request.From, request.To)]; {
	case already && cut:
		return "the link to " + request.To + " is disconnected already"
	case !already && !cut:
		return "the link to " + request.To + " is in use already"
	case cut && len(m.state.Cut) >= cutsLimit:
		return fmt.Sprintf("expected at most %d links that are cut", cutsLimit)
	}
	return ""
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

// forgetLinks drops what is known of the links of a node that is gone. What was cut on purpose stays cut: the node may
// come back.
func (m *Machine) forgetLinks(node string) {
	maps.DeleteFunc(m.state.Links, func(key string, _ events.Link) bool {
		from, to, _ := strings.Cut(key, " ")
		return from == node || to == node
	})
}
