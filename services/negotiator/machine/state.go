package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/profile"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// state is all the negotiator remembers; it is plain data, so that a snapshot is its JSON. Each part is declared by the code that owns it.
type state struct {
	Heard time.Time     `json:"heard"` // when the last event was logged, by the log's clock
	Lag   time.Duration `json:"lag"`   // of the last overdue fact: from its time to when it was logged

	Admission int `json:"admission,omitempty"` // version of the policy of who may join; zero: there is none

	roster       // membership.go
	network      // links.go
	training     // commit.go
	goal         // job.go
	figures      // price.go
	negotiations // pending.go
	troubles     // blame.go
}

// member is a node that is active or wants to be.
type member struct {
	events.Member
	MemoryBytes int64           `json:"memoryBytes"`
	StateCopies int             `json:"stateCopies,omitempty"`
	Samples     int64           `json:"samples,omitempty"` // of its local data
	SpeedFactor float64         `json:"speedFactor"`       // as it told it last
	Took        took            `json:"took,omitzero"`
	OtherBytes  int64           `json:"otherBytes,omitempty"` // in use beside what the job's layers say; zero: not known
	Snapshots   bool            `json:"snapshots"`            // it may be able to read some
	Lifted      []string        `json:"lifted,omitempty"`     // by "a b": cuts that its join lifts, while it is not committed
	Trained     *events.Trained `json:"trained,omitempty"`    // before it asked, as its join says, while it is not committed; nil: nothing
	Stepped     uint64          `json:"stepped,omitempty"`    // generation of the last plan under which it made a step
	Asked       time.Time       `json:"asked,omitzero"`       // it asked for its place, by the log's clock
	Anew        int             `json:"anew,omitempty"`       // how many requests of it in a row were there before this one
	Bid         string          `json:"bid,omitempty"`        // by which its job is known, while there is no plan
	Steps       uint64          `json:"steps,omitempty"`      // of its job, as its join says; zero: not known
	Since       time.Time       `json:"since"`                // it takes part, by the log's clock; zero: not yet
	Wished      bool            `json:"wished,omitempty"`     // its end is no failure: it had asked to leave, or training was complete
	NotBefore   time.Time       `json:"notBefore"`            // its join is not negotiated earlier, by the log's clock; zero: it need not wait
}

// leaver is a process that may still train towards the step at which a plan takes over that does without it.
type leaver struct {
	Incarnation string `json:"incarnation"`
	Generation  uint64 `json:"generation"`
}

// hold is the state of a cluster in which nothing can be done until the world changes.
type hold struct {
	Active  bool     `json:"active"`
	Ever    int      `json:"ever"`              // holds so far: no two retries have one id
	InARow  int      `json:"inARow"`            // without a new change between them
	Seconds float64  `json:"seconds,omitempty"` // to wait for nodes that may come back; zero: until the next retry
	Awaits  []string `json:"awaits,omitempty"`  // nodes without which there is no plan
	Older   bool     `json:"older,omitempty"`   // the log is older than what nodes trained
}

// negotiation is a change under way. Each phase has its part, declared in the phase's file.
type negotiation struct {
	ID      string          `json:"id"`
	Phase   protocol.Phase  `json:"phase"`
	Opening events.Opening  `json:"opening"`
	Trace   string          `json:"trace"`
	Round   int             `json:"round"` // of the phase: each ended without an answer
	missing map[string]bool // whose answer the phase waits for; nil: not looked up since the phase began, or the restart

	consenting
	planning
	restoring
	preCopying
	promising
	transferring
	halting
}

func newState() state {
	return state{
		roster: roster{
			Members: map[string]*member{}, Joiners: map[string]*member{}, Leavers: map[string]leaver{},
			Deadlines: map[string]time.Time{}, Failed: map[string]failures{}, Starts: map[string]starts{},
			Gone: map[string]string{}, Blank: map[string]string{}, Fallen: map[string]uint64{},
		},
		network: network{
			Links: map[string]events.Link{}, Untold: map[string]bool{}, Cut: map[string]bool{}, Apart: map[string]bool{},
			Shifts: map[string]shift{},
		},
		figures:  figures{Paces: map[string]float64{}, Pauses: map[string]float64{}, Costs: profile.Layers{}, Measured: profile.Paces{}},
		troubles: troubles{Busy: map[string]busy{}, Misread: map[string]bool{}, Blamed: map[string]int{}},
	}
}

// ofBefore is what builds of before December 2026 remember in place of Reset. It is written for them, too: who goes back to one keeps that
// training is to begin anew.
type ofBefore struct {
	Anew     string `json:"anew,omitempty"`
	AnewFrom bool   `json:"anewFrom,omitempty"`
}

// Snapshot returns the machine's memory.
func (m *Machine) Snapshot() ([]byte, error) {
	written := struct {
		state
		ofBefore
	}{state: m.state}
	if reset := m.state.Reset; reset != nil {
		written.ofBefore = ofBefore{reset.Reason, reset.Snapshots}
	}
	return json.Marshal(written)
}

// Restore replaces the machine's memory by that of a snapshot. It fails where that had a later admission policy.
func (m *Machine) Restore(data []byte) error {
	restored := struct {
		state
		Steps map[string]float64 `json:"steps"` // in place of Measured, from builds that knew of no passes
		ofBefore
	}{state: newState()}
	if err := json.Unmarshal(data, &restored); err != nil {
		return err
	}
	if before, now := restored.Admission, m.settings.Admission.Version; now < before {
		return fmt.Errorf("REKNIT_ADMISSION: policy.version: expected %d at least, which was in force, got %d", before, now)
	}
	restored.Admission = m.settings.Admission.Version
	for node, seconds := range restored.Steps {
		restored.Measured.Take(node, seconds, 0)
	}
	if restored.Anew != "" && restored.Reset == nil {
		restored.Reset = &events.JobReset{Generation: restored.generation(), Reason: restored.Anew, Snapshots: restored.AnewFrom}
	}
	if plan := restored.Plan; plan != nil && restored.History.Before == 0 && restored.History.Plans == nil {
		restored.History = protocol.History{}.From("", plan.ResumeStep) // of a build before December 2026
	}
	if under := restored.Negotiation; under != nil && under.Phase == protocol.Restoring {
		under.Plan = nil // of a build before December 2026, which kept one whose moves were planned anew
	}
	restored.madeBefore()
	m.state, m.looked = restored.state, false
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

// trusted reports whether what a node says it holds needs no proof: the plan in force names this very process, so that
// its replicas are compared with others'. Before the first plan nobody holds anything that training made.
func (s *state) trusted(node, incarnation string) bool {
	if s.Plan == nil {
		return true
	}
	member, there := s.Plan.Member(node)
	return there && member.Incarnation == incarnation
}

// participants returns who takes part in a negotiation of changes, in the order of their names: active nodes, and the
// joiners among the changes.
func (s *state) participants(changes []events.Change) []*member {
	all := maps.Clone(s.Members)
	for _, change := range changes {
		if joiner := s.Joiners[change.Node]; joiner != nil && change.Kind == events.ChangeJoin {
			all[change.Node] = joiner
		}
	}
	list := make([]*member, 0, len(all))
	for _, node := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[node])
	}
	return list
}

// after returns who is active once the changes are made, in the order of their names.
func (s *state) after(changes []events.Change) []*member {
	return slices.DeleteFunc(s.participants(changes), func(m *member) bool { return leaves(changes, m.Node) })
}

func leaves(changes []events.Change, node string) bool {
	return slices.ContainsFunc(changes, func(change events.Change) bool {
		return change.Kind == events.ChangeLeave && change.Node == node
	})
}

// placed returns the units of each active node that trains under the plan in force.
func (s *state) placed() map[string][]int {
	units := map[string][]int{}
	for node, member := range s.Members {
		if s.Plan != nil && s.trusted(node, member.Incarnation) {
			units[node] = slices.Collect(events.Each(s.Plan.UnitsOf(node)))
		}
	}
	return units
}

func membersOf(nodes []*member) []events.Member {
	list := make([]events.Member, len(nodes))
	for i, node := range nodes {
		list[i] = node.Member
	}
	return list
}
