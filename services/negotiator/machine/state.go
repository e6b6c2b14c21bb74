package machine

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// state is all the negotiator remembers; it is plain data, so that a snapshot is its JSON.
type state struct {
	Job         *events.Job            `json:"job,omitempty"` // that of the first to join; everybody else's must equal it
	Members     map[string]*member     `json:"members"`       // active nodes
	Joiners     map[string]*member     `json:"joiners"`       // asked to join, not yet in a committed plan
	Links       map[string]events.Link `json:"links"`         // by "from to"
	Cut         map[string]bool        `json:"cut"`           // by "a b": disconnected on purpose
	Plan        *events.Plan           `json:"plan,omitempty"`
	PlanDigest  string                 `json:"planDigest,omitempty"`
	Abandoned   bool                   `json:"abandoned"` // a step was abandoned since the last commit: no going back to the old plan
	Pending     []events.Change        `json:"pending"`   // changes that no negotiation has taken up, or that one under way must finish
	Negotiation *negotiation           `json:"negotiation,omitempty"`
	Failures    float64                `json:"failures"` // per node and second, as the monitor last said
	Returns     float64                `json:"returns"`  // seconds a lost node stays away, as the monitor last said; zero: not known
	Waited      bool                   `json:"waited"`   // for lost nodes, since the last commit: once is enough
	Patience    float64                `json:"patience"` // seconds that the planner wants to wait; zero while nobody is waited for
	Attempts    int                    `json:"attempts"` // negotiations in a row that failed on a transfer
	Holds       int                    `json:"holds"`    // times that nothing could be done, ever: no two retries have one id
	Held        int                    `json:"held"`     // times in a row that nothing could be done; zero while something can
}

// member is a node that is active or wants to be.
type member struct {
	events.Member
	MemoryBytes int64   `json:"memoryBytes"`
	SpeedFactor float64 `json:"speedFactor"`
	Leaving     bool    `json:"leaving,omitempty"`
}

// negotiation is a change under way.
type negotiation struct {
	ID        string                    `json:"id"`
	Phase     protocol.Phase            `json:"phase"`
	Opening   events.Opening            `json:"opening"`
	Trace     string                    `json:"trace"`
	Overdue   int                       `json:"overdue"` // rounds of the phase that ended without an answer
	Consents  map[string]events.Consent `json:"consents"`
	Proposal  *events.Proposal          `json:"proposal,omitempty"`
	Plan      *events.Plan              `json:"plan,omitempty"` // with nodes, transfers and rounds
	Started   bool                      `json:"started"`        // layers began to move while training goes on
	Awaited   []string                  `json:"awaited"`        // receivers that have not said whether they follow, once for each layer
	Promises  map[string]uint64         `json:"promises"`
	StopStep  uint64                    `json:"stopStep"`
	FixedStep bool                      `json:"fixedStep"` // the stop step comes from the holdings, not from promises
}

func newState() state {
	return state{
		Members: map[string]*member{}, Joiners: map[string]*member{},
		Links: map[string]events.Link{}, Cut: map[string]bool{},
	}
}

// Snapshot returns the machine's memory.
func (m *Machine) Snapshot() ([]byte, error) { return json.Marshal(m.state) }

// Restore replaces the machine's memory by that of a snapshot.
func (m *Machine) Restore(data []byte) error {
	restored := newState()
	if err := json.Unmarshal(data, &restored); err != nil {
		return err
	}
	m.state = restored
	return nil
}

// generation returns that of the plan in force; zero before the first.
func (s *state) generation() uint64 {
	if s.Plan == nil {
		return 0
	}
	return s.Plan.Generation
}

// known returns the active or joining node with this id.
func (s *state) known(node string) *member {
	if member := s.Members[node]; member != nil {
		return member
	}
	return s.Joiners[node]
}

// next returns who will be active after the negotiation, in a fixed order.
func (s *state) next() []*member {
	var next []*member
	for _, member := range s.everybody() {
		if !member.Leaving {
			next = append(next, member)
		}
	}
	return next
}

// everybody returns who takes part in a negotiation: active, leaving and joining nodes, in a fixed order.
func (s *state) everybody() []*member {
	all := maps.Clone(s.Members)
	maps.Copy(all, s.Joiners)
	list := make([]*member, 0, len(all))
	for _, node := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[node])
	}
	return list
}

func membersOf(nodes []*member) []events.Member {
	list := make([]events.Member, len(nodes))
	for i, node := range nodes {
		list[i] = node.Member
	}
	return list
}

func linkKey(from, to string) string { return from + " " + to }

func pairKey(a, b string) string {
	pair := events.PairOf(a, b)
	return linkKey(pair.A, pair.B)
}

// links returns what is known of the links among the nodes that will be active, in a fixed order. A
// disconnected link is told even where it was never measured.
func (s *state) links() []events.Link {
	var links []events.Link
	next := s.next()
	for _, a := range next {
		for _, b := range next {
			if a == b {
				continue
			}
			link, known := s.Links[linkKey(a.Node, b.Node)]
			link.From, link.To = a.Node, b.Node
			link.Disconnected = s.Cut[pairKey(a.Node, b.Node)]
			if known || link.Disconnected {
				links = append(links, link)
			}
		}
	}
	return links
}

// relays returns the pairs of nodes that must not use a direct link.
func (s *state) relays(nodes []events.Member) []events.Pair {
	var pairs []events.Pair
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			lost := s.Links[linkKey(a.Node, b.Node)].Lost || s.Links[linkKey(b.Node, a.Node)].Lost
			if lost || s.Cut[pairKey(a.Node, b.Node)] {
				pairs = append(pairs, events.PairOf(a.Node, b.Node))
			}
		}
	}
	return pairs
}
