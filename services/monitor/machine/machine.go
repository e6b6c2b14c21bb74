// Package machine is the monitor's deterministic part: it hears who joins and who leaves, takes heartbeats and the
// answers to probes, and says who is suspected, cleared or lost and how good each link is.
package machine

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/detect"
)

// Settings are the monitor's knobs.
type Settings struct {
	Cluster      string
	Detector     detect.Settings
	PriorSeconds float64          // node-seconds in which one failure is expected before any was seen
	LinkSeconds  float64          // between two link probes of up to nodesPerProbe nodes; zero: none
	LinkBytes    int              // sent to measure the bandwidth
	Untold       detect.Tolerance // changes of a link that are not worth a fact
}

// Defaults are the settings of a monitor that nobody configured.
func Defaults(cluster string) Settings {
	return Settings{
		Cluster: cluster, Detector: detect.Defaults(), PriorSeconds: 24 * 3600,
		LinkSeconds: 1, LinkBytes: 256 << 10, Untold: detect.Tolerance{Share: 0.25, RoundTripSeconds: 0.5e-3},
	}
}

// Machine watches the nodes and links of one cluster.
type Machine struct {
	settings Settings
	speaker  events.Speaker
	state    state

	// The fields below are learned anew after a restart.
	clock    clock
	detector *detect.Detector
	hangs    *detect.Hangs
	reports  map[events.Pair]detect.Reports
	probed   map[direction]detect.Estimate // by probes
	proofs   map[direction]detect.Proof    // by transfers
	asked    map[Ask]float64               // when; not yet answered
	asks     []Ask                         // not yet fetched
	ticked   float64                       // the last Tick
	nextLink float64                       // when the next link is measured
	round    []direction                   // still to be measured before all have their turn again
	lostTurn int                           // of trying lost links; the two take turns

	measuredAt map[direction]float64 // when a direction was last measured, whoever did it
	using      []direction           // what the plan in force uses
	used       []direction           // of these: still to be measured before all have their turn again
	usedSince  float64               // when that round began
	turn       int                   // of measuring what the plan uses, and what it does not

	nextConfirm float64   // when the next round of what negotiations told of is measured
	confirmed   direction // the last of the round before
}

// state is what outlives a restart.
type state struct {
	Nodes       map[string]*node      `json:"nodes"`
	Links       []link                `json:"links"` // in order of their pairs
	Said        told                  `json:"said"`
	Opening     *events.Opening       `json:"opening,omitempty"`
	Rate        detect.Rate           `json:"rate"`
	Returns     detect.Returns        `json:"returns"`
	Learned     detect.Memory         `json:"learned"`               // by the detector
	Leavers     map[string]uint64     `json:"leavers"`               // generation that does without a node which still trains to its step
	Turn        int                   `json:"turn"`                  // directions measured in this round
	Unconfirmed unconfirmed           `json:"unconfirmed,omitempty"` // that negotiations told of, and nobody measured again
	Completed   bool                  `json:"completed,omitempty"`   // the job is, for good
	Late        late                  `json:"late,omitempty"`        // that asked for a place since, and were not refused yet
	Halted      uint64                `json:"halted,omitempty"`      // generation under which training was stopped last; zero: it never was
	links       map[events.Pair]*link // Links
}

type node struct {
	Incarnation string   `json:"incarnation"`
	Address     string   `json:"address"`
	Site        string   `json:"site,omitempty"`
	Number      uint64   `json:"number"` // of the last heartbeat
	Active      bool     `json:"active"` // a member of the committed plan
	Suspected   bool     `json:"suspected"`
	generation  uint64   // of the plan it works under, by its last heartbeat
	step        uint64   // that it had completed by then
	asked       float64  // when it was last asked for a sign of life
	tried       float64  // when witnesses were last asked for it
	rounds      int      // of witnesses that were asked for it
	ended       bool     // the agent beside it saw its process end
	rested      float64  // when its agent told last that its script rests; zero: it never did
	gone        *float64 // since when the hub has nobody to ask; nil while it has
}

// link is one about which there is more to know than how good it is.
type link struct {
	events.Pair
	Lost         bool `json:"lost"`
	Disconnected bool `json:"disconnected"` // on purpose
}

// direction is a link in one direction.
type direction struct{ from, to string }

func (d direction) pair() events.Pair { return events.PairOf(d.from, d.to) }

// New returns a machine that knows nobody.
func New(settings Settings) *Machine {
	m := &Machine{settings: settings, speaker: events.Speaker{Source: "/monitor", Cluster: settings.Cluster}}
	m.reset(state{Rate: detect.Rate{PriorSeconds: settings.PriorSeconds}})
	return m
}

func (m *Machine) reset(state state) {
	m.state = state
	if m.state.Nodes == nil {
		m.state.Nodes = map[string]*node{}
	}
	if m.state.Leavers == nil {
		m.state.Leavers = map[string]uint64{}
	}
	if m.state.Late == nil {
		m.state.Late = late{}
	}
	m.state.links = map[events.Pair]*link{}
	for _, known := range state.Links {
		m.state.links[known.Pair] = &known
	}
	m.detector, m.hangs = detect.New(m.settings.Detector, state.Learned), detect.NewHangs()
	for name, known := range m.state.Nodes {
		thought := detect.Green
		if known.Suspected {
			thought = detect.Suspected
		}
		m.detector.Watch(detect.Watched{
			Node: name, Incarnation: known.Incarnation, Site: known.Site, Number: known.Number, State: thought,
		})
	}
	m.clock, m.ticked, m.nextLink, m.round = clock{}, 0, 0, nil
	m.probed, m.proofs = map[direction]detect.Estimate{}, map[direction]detect.Proof{}
	for _, said := range m.state.Said {
		m.probed[direction{said.From, said.To}] = estimate(said)
	}
	m.measuredAt, m.using, m.used, m.usedSince, m.turn = map[direction]float64{}, nil, nil, 0, 0
	m.nextConfirm, m.confirmed = 0, direction{}
	m.reports, m.asked, m.asks = map[events.Pair]detect.Reports{}, map[Ask]float64{}, nil
}

// Snapshot returns what outlives a restart.
func (m *Machine) Snapshot() ([]byte, error) {
	state := m.state
	state.Links, state.Learned = nil, m.detector.Memory()
	for _, pair := range slices.SortedFunc(maps.Keys(state.links), comparePairs) {
		state.Links = append(state.Links, *state.links[pair])
	}
	return json.Marshal(state)
}

// Restore takes a snapshot. Every node in it has a full timeout of grace from the first Tick on.
func (m *Machine) Restore(snapshot []byte) error {
	var state state
	if err := json.Unmarshal(snapshot, &state); err != nil {
		return err
	}
	state.Rate.PriorSeconds = m.settings.PriorSeconds
	m.reset(state)
	return nil
}

func (m *Machine) link(pair events.Pair) *link {
	if m.state.links[pair] == nil {
		m.state.links[pair] = &link{Pair: pair}
	}
	return m.state.links[pair]
}

// disconnected reports whether a link is not to be used, on purpose.
func (m *Machine) disconnected(pair events.Pair) bool {
	known := m.state.links[pair]
	return known != nil && known.Disconnected
}

func (m *Machine) lost(pair events.Pair) bool {
	known := m.state.links[pair]
	return known != nil && known.Lost
}
