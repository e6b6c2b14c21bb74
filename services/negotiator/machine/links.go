package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// network is what is known of links, and which of them nobody may use.
type network struct {
	Links  map[string]events.Link `json:"links"`  // by "from to"
	Untold map[string]bool        `json:"untold"` // by "from to": measured by members, and not told to the monitor yet
	Cut    map[string]bool        `json:"cut"`    // by "a b": disconnected on purpose
	Apart  map[string]bool        `json:"apart"`  // by "a b": left out by a join that names its neighbours, while both are here
	Shifts map[string]shift       `json:"shifts"` // by node: changes that its links have brought about lately
}

func (m *Machine) connect(request events.LinkRequest) {
	if reason := m.cannot(request, false); reason != "" {
		m.refuse(refusalOf(events.ChangeConnect, request.From, reason))
		return
	}
	m.state.join(request.From, request.To)
	m.pend(events.Change{Kind: events.ChangeConnect, Node: request.From, Peer: request.To}, protocol.Patient)
}

func (m *Machine) disconnect(request events.LinkRequest) {
	if reason := m.cannot(request, true); reason != "" {
		m.refuse(refusalOf(events.ChangeDisconnect, request.From, reason))
		return
	}
	m.state.Cut[pairKey(request.From, request.To)] = true
	m.pend(events.Change{Kind: events.ChangeDisconnect, Node: request.From, Peer: request.To},
		protocol.Patient)
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
	switch already := m.state.apart(request.From, request.To); {
	case already && cut:
		return "the link to " + request.To + " is disconnected already"
	case !already && !cut:
		return "the link to " + request.To + " is in use already"
	case cut && len(m.state.Cut) >= cutsLimit:
		return fmt.Sprintf("expected at most %d links that are cut", cutsLimit)
	}
	return ""
}

// linkMeasured keeps how good a link is, and heeds what that changes.
func (m *Machine) linkMeasured(measured events.Measurement) {
	m.noteLink(measured)
	m.agenda.heeds = true
}

// noteLink keeps how good a link is while both its ends are known.
func (m *Machine) noteLink(measured events.Measurement) {
	if m.state.known(measured.From) == nil || m.state.known(measured.To) == nil {
		return
	}
	link := m.state.Links[linkKey(measured.From, measured.To)]
	link.Measurement = measured.Rounded()
	m.state.Links[linkKey(measured.From, measured.To)] = link
	if m.looked {
		m.maySuffice[measured.From], m.maySuffice[measured.To] = true, true
	}
}

func (m *Machine) linkLost(lost events.LinkState) {
	if m.state.Members[lost.From] == nil || m.state.Members[lost.To] == nil {
		return
	}
	if !m.markLost(lost, true) {
		return
	}
	m.pend(events.Change{Kind: events.ChangeLinkLost, Node: lost.From, Peer: lost.To}, protocol.Urgent)
}

func (m *Machine) linkRestored(restored events.LinkState) {
	if m.state.Members[restored.From] == nil || m.state.Members[restored.To] == nil || !m.markLost(restored, false) {
		return
	}
	m.pend(events.Change{Kind: events.ChangeRestored, Node: restored.From, Peer: restored.To},
		protocol.Patient)
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

// forgetLinks drops what is known of the links of a node that is gone. A link that was cut on purpose stays cut: the
// node may come back.
func (m *Machine) forgetLinks(node string) {
	maps.DeleteFunc(m.state.Links, func(key string, _ events.Link) bool { return touches(key, node) })
	maps.DeleteFunc(m.state.Untold, func(key string, _ bool) bool { return touches(key, node) })
	m.forgetApart(node)
}

// forgetApart drops what a node's join left out, and what other joins left out of it.
func (m *Machine) forgetApart(node string) {
	maps.DeleteFunc(m.state.Apart, func(key string, _ bool) bool { return touches(key, node) })
}

// touches reports whether a node is an end of the link or the pair with this key.
func touches(key, node string) bool {
	from, to, _ := strings.Cut(key, " ")
	return from == node || to == node
}

func linkKey(from, to string) string { return from + " " + to }

func pairKey(a, b string) string {
	pair := events.PairOf(a, b)
	return linkKey(pair.A, pair.B)
}

// How many links the planner and the restorer are told of, whatever they are like: those of 64 nodes, among whom the planner finds
// sites by them, and those of 32.
const plannerLinks, restorerLinks = 4096, 1024

// told returns what a request says of the links among nodes, in the order of their names. Usual is nil where no link was
// measured. So few links are all listed. More are listed where they are unlike the usual link, anywhere or between their sites: who
// reads a request may not look at sites. O(links * log links).
func (s *state) told(nodes []*member, few int) (links []events.Link, usual *events.Usual, all bool) {
	links, site := s.links(nodes), events.SitesOf(membersOf(nodes))
	usual, all = events.UsualOf(links, site), len(links) <= few
	if usual != nil && !all { // before they are sorted: few are left
		links = slices.DeleteFunc(links, func(link events.Link) bool {
			return !link.Lost && !link.Disconnected && usual.StandsFor(link.Measurement, nil) && usual.StandsFor(link.Measurement, site)
		})
	}
	slices.SortFunc(links, func(a, b events.Link) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return links, usual, all
}

// links returns what is known of the links among nodes, in no order. A disconnected link is told even where it was
// never measured.
func (s *state) links(nodes []*member) []events.Link {
	place := places(membersOf(nodes))
	links := make([]events.Link, 0, len(s.Links))
	for _, link := range s.Links {
		if !place.has(link.From, link.To) {
			continue
		}
		link.Disconnected = len(s.Cut)+len(s.Apart) > 0 && s.apart(link.From, link.To)
		links = append(links, link)
	}
	for key := range s.disconnected() {
		a, b, _ := strings.Cut(key, " ")
		for _, end := range [][2]string{{a, b}, {b, a}} {
			if _, known := s.Links[linkKey(end[0], end[1])]; !known && place.has(a, b) {
				cut := events.Link{Disconnected: true}
				cut.From, cut.To = end[0], end[1]
				links = append(links, cut)
			}
		}
	}
	return links
}

// relays returns the pairs of nodes that must not use a direct link, in the order of the nodes, which is that of their
// names.
func (s *state) relays(nodes []events.Member) []events.Pair {
	place := places(nodes)
	var pairs []events.Pair
	for _, link := range s.Links {
		if link.Lost && place.has(link.From, link.To) {
			pairs = append(pairs, events.PairOf(link.From, link.To))
		}
	}
	for key := range s.disconnected() {
		if a, b, _ := strings.Cut(key, " "); place.has(a, b) {
			pairs = append(pairs, events.PairOf(a, b))
		}
	}
	slices.SortFunc(pairs, func(a, b events.Pair) int {
		return cmp.Or(cmp.Compare(place[a.A], place[b.A]), cmp.Compare(place[a.B], place[b.B]))
	})
	return slices.Compact(pairs)
}

// order tells where each node stands in a list.
type order map[string]int

func places(nodes []events.Member) order {
	places := order{}
	for i, node := range nodes {
		places[node.Node] = i
	}
	return places
}

func (o order) has(a, b string) bool {
	_, first := o[a]
	_, second := o[b]
	return first && second
}
