package machine

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/profile"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// state is all the negotiator remembers; it is plain data, so that a snapshot is its JSON.
type state struct {
	Heard       time.Time              `json:"heard"`         // when the last event was logged, by the log's clock
	Lag         time.Duration          `json:"lag"`           // of the last overdue fact: from its time to when it was logged
	Job         *events.Job            `json:"job,omitempty"` // of the first to join; everybody else's must equal it
	Members     map[string]*member     `json:"members"`       // active nodes
	Joiners     map[string]*member     `json:"joiners"`       // asked to join, not yet in a committed plan
	Busy        map[string]busy        `json:"busy"`          // by "phase node": members that said they will answer later
	Failed      map[string]failures    `json:"failed"`        // by node: lately
	Starts      map[string]starts      `json:"starts"`        // that failed, by crowd
	Deadlines   map[string]time.Time   `json:"deadlines"`     // of nodes that want to leave
	Leavers     map[string]leaver      `json:"leavers"`       // that the last plans do without
	Links       map[string]events.Link `json:"links"`         // by "from to"
	Untold      map[string]bool        `json:"untold"`        // by "from to": measured by members, and not told to the monitor yet
	Cut         map[string]bool        `json:"cut"`           // by "a b": disconnected on purpose
	Apart       map[string]bool        `json:"apart"`         // by "a b": left out by a join that names its neighbours, while both are here
	Plan        *events.Plan           `json:"plan,omitempty"`
	PlanDigest  string                 `json:"planDigest,omitempty"`
	Data        protocol.Data          `json:"data,omitempty"`
	History     protocol.History       `json:"history,omitzero"`
	WentBack    bool                   `json:"wentBack"`          // the plan in force: to an older step than the one before had reached
	Unbegun     bool                   `json:"unbegun,omitempty"` // no step is known to have been made since training began
	Blank       map[string]string      `json:"blank,omitempty"`   // incarnations of Plan that made no step, as later ones of the node told
	Reset       *events.JobReset       `json:"reset,omitempty"`   // somebody has training begin with the next plan; nil: nobody
	Asked       []request              `json:"asked,omitempty"`   // by users, and not decided yet
	Committed   time.Time              `json:"committed"`         // the plan in force, by the log's clock
	Stopped     time.Time              `json:"stopped"`           // its training, by the log's clock; zero: it goes on
	Lacking     time.Time              `json:"lacking"`           // since when the holder of the last steps is waited for; zero: none is
	Ask         bool                   `json:"ask"`               // for snapshots: living nodes did not have all units
	Paused      bool                   `json:"paused"`            // a step was abandoned: only a new plan lets trainers go on
	Misread     map[string]bool        `json:"misread"`           // by "node plan position": snapshots not read lately; by node: two
	Gone        map[string]string      `json:"gone"`              // incarnations of Plan, or that told of one, which have nothing, by node
	Fallen      map[string]uint64      `json:"fallen"`            // steps that nodes had completed which were lost since the last commit
	Missed      map[string]string      `json:"missed,omitempty"`  // incarnations lost from a place that may live, by node
	Recall      recall                 `json:"recall,omitzero"`
	Abandoned   uint64                 `json:"abandoned"`      // generation of the last plan for which all abandoned their steps
	Bids        map[string]*events.Job `json:"bids,omitempty"` // jobs of those who wait for a first plan of several nodes
	Breaks      breaks                 `json:"breaks"`
	Poison      poison                 `json:"poison,omitzero"`
	Pending     []events.Change        `json:"pending"`  // changes that no commit has brought about yet
	Together    int                    `json:"together"` // that are asked for and negotiated at a time; zero: all, less: none
	Renewals    int                    `json:"renewals"` // negotiations since the last commit that ended for what is not urgent
	Negotiation *negotiation           `json:"negotiation,omitempty"`
	Hold        hold                   `json:"hold"`
	Message     float64                `json:"message"`            // seconds that one takes over a ring's slowest link, as known when its plan was made; zero: none was
	Shifts      map[string]shift       `json:"shifts"`             // by node: changes that its links have brought about lately
	Deferred    bool                   `json:"deferred"`           // lost nodes were waited for since the last commit: once is enough
	Tellers     []string               `json:"tellers"`            // of failed transfers, one for each negotiation in a row that failed so
	Reasked     int                    `json:"reasked"`            // negotiations since the last commit that were opened anew for an answer that nobody can do without
	Unanswered  int                    `json:"unanswered"`         // questions in a row that the planner or the restorer did not answer
	Blamed      map[string]int         `json:"blamed"`             // failed transfers since the last commit, by the node that is to blame
	Alone       []string               `json:"alone,omitempty"`    // last holders of whom one of these did not give what others claim, likewise
	Doubts      []events.Doubt         `json:"doubts"`             // since the last commit; each pair once
	Paces       map[string]float64     `json:"paces"`              // seconds of a usual step, by the node that measured it
	Pauses      map[string]float64     `json:"pauses"`             // seconds of the longest pause between two steps, likewise
	Prices      prices                 `json:"prices"`             // of the last changes
	Costs       profile.Layers         `json:"costs"`              // of layers, as nodes measured them
	Measured    profile.Paces          `json:"measured"`           // of steps under the plan in force
	Finals      *finals                `json:"finals,omitempty"`   // nil: training is complete for nobody yet
	Complete    *events.JobEnd         `json:"complete,omitempty"` // nil: the job is not done
	Stopping    string                 `json:"stopping,omitempty"` // why all who train are to stop, as somebody asked; empty: nobody did
	Stored      stored                 `json:"stored,omitzero"`
	Stop        *events.JobStop        `json:"stop,omitempty"`   // nil: training was not stopped since the last commit
	Ended       time.Time              `json:"ended,omitzero"`   // the job, by the log's clock
	EndTold     time.Time              `json:"endTold,omitzero"` // when that was logged last
	Failures    float64                `json:"failures"`         // per node and second, as the monitor last said
	Returns     float64                `json:"returns"`          // seconds a lost node stays away, by the monitor; zero: not known
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

// negotiation is a change under way.
type negotiation struct {
	ID       string                    `json:"id"`
	Phase    protocol.Phase            `json:"phase"`
	Opening  events.Opening            `json:"opening"`
	Trace    string                    `json:"trace"`
	Round    int                       `json:"round"` // of the phase: each ended without an answer
	Consents map[string]events.Consent `json:"consents"`
	Claims   claims                    `json:"claims"`          // of those whose word needs proof
	Older    map[uint64]claims         `json:"older,omitempty"` // by generation: of those who trained under a plan before the one in force
	Back     *back                     `json:"back,omitempty"`
	Proposal *events.Proposal          `json:"proposal,omitempty"`
	Plan     *events.Plan              `json:"plan,omitempty"`     // with nodes, transfers and rounds
	Outdated bool                      `json:"outdated,omitempty"` // other changes came since the opening
	Asked    bool                      `json:"asked,omitempty"`    // the planner
	Started  bool                      `json:"started"`            // units began to move while training goes on
	Awaited  []string                  `json:"awaited"`            // receivers that have not caught up
	Promises map[string]uint64         `json:"promises"`
	StopStep uint64                    `json:"stopStep"`
	Snapshot protocol.Snapshot         `json:"snapshot,omitzero"` // to go back to; zero: none
	Grace    float64                   `json:"grace,omitempty"`   // seconds that units may move before a leaver's deadline; zero: none

	Message float64 `json:"message,omitempty"` // as the machine's, of the plan proposed

	Wrote     map[int]bool    `json:"wrote,omitempty"`     // units of the last snapshot that are written to some tier
	Unwritten []unwritten     `json:"unwritten,omitempty"` // of the last snapshot, one of a node and tier
	Made      map[string]bool `json:"made,omitempty"`      // nodes that told that they made the step at which all stop

	Spared []string `json:"spared,omitempty"` // leavers that give only what nobody who stays holds

	moved    bool            // all units, or none had to
	waited   bool            // for those who are behind the step at which all stop
	measured int             // links, the first ones, whose ends have consented; looked up anew after a restart
	missing  map[string]bool // whose answer the phase waits for; nil: not looked up since the phase began, or the restart
}

func newState() state {
	return state{
		Members: map[string]*member{}, Joiners: map[string]*member{}, Failed: map[string]failures{}, Starts: map[string]starts{}, Busy: map[string]busy{},
		Deadlines: map[string]time.Time{}, Leavers: map[string]leaver{}, Blamed: map[string]int{}, Gone: map[string]string{},
		Fallen: map[string]uint64{}, Misread: map[string]bool{}, Blank: map[string]string{},
		Paces: map[string]float64{}, Pauses: map[string]float64{},
		Costs: profile.Layers{}, Measured: profile.Paces{}, Shifts: map[string]shift{},
		Links: map[string]events.Link{}, Untold: map[string]bool{}, Cut: map[string]bool{}, Apart: map[string]bool{},
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

// Restore replaces the machine's memory by that of a snapshot.
func (m *Machine) Restore(data []byte) error {
	restored := struct {
		state
		Steps map[string]float64 `json:"steps"` // in place of Measured, from builds that knew of no passes
		ofBefore
	}{state: newState()}
	if err := json.Unmarshal(data, &restored); err != nil {
		return err
	}
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
