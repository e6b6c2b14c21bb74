package dev

import (
	"fmt"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
)

// story makes sense of the log: which plan is in force, and what became of each change.
type story struct {
	mutex     sync.Mutex
	began     time.Time
	changes   []*Change
	plan      *events.Plan
	logged    map[string]time.Time // of the facts and requests that may cause a change
	planned   map[string]planned   // by negotiation
	activated map[uint64]map[string]bool
	nodes     map[string]events.Pulse // the last heartbeat of each
	digests   map[int]map[string]bool // by row: what holders said of the final step
	end       *events.JobEnd          // nil: the job is not complete
	held      string
	news      chan struct{}
	lastStep  time.Time // was completed
	gaps      stepGaps
}

type planned struct {
	at          time.Time
	transferred time.Time
	restoration events.Restoration
	holders     []events.Holder
	units       []int64 // bytes of each
	changes     []events.Change
}

func newStory() *story {
	return &story{
		began: time.Now(), lastStep: time.Now(), news: make(chan struct{}, 1),
		logged: map[string]time.Time{}, planned: map[string]planned{},
		activated: map[uint64]map[string]bool{}, nodes: map[string]events.Pulse{},
		digests: map[int]map[string]bool{},
	}
}

// kindOf says which kind of change a verb brings.
var kindOf = map[string]string{
	"kill": events.ChangeFailure, "join": events.ChangeJoin, "leave": events.ChangeLeave,
	"connect": events.ChangeConnect, "disconnect": events.ChangeDisconnect,
}

// begin notes that an action is done now.
func (s *story) begin(action Action, names []string) *Change {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now := time.Now()
	change := &Change{
		Action: Action{Verb: action.Verb, Names: names}.String(), Kind: kindOf[action.Verb], Step: s.step(),
		AtSeconds: now.Sub(s.began).Seconds(), done: now, node: names[0],
	}
	for _, open := range s.open() {
		change.UnderWay = append(change.UnderWay, open.Kind)
	}
	if len(names) > 1 {
		change.peer = names[1]
	}
	if s.plan != nil {
		change.before = s.plan.Generation
	}
	if isService(names[0]) {
		change.Kind, change.service = serviceRestart, names[0]
		s.gaps.reset(now)
	}
	if action.Verb == "kill" {
		s.overtake(names[0])
	}
	s.changes = append(s.changes, change)
	return change
}

// overtake ends what was under way with a node that is killed now; the mutex is held.
func (s *story) overtake(node string) {
	for _, change := range s.changes {
		if change.node == node && !change.Healed && change.Kind != events.ChangeFailure {
			change.Overtaken, change.Healed = true, true
		}
	}
}

// step returns the highest completed step heard of; the mutex is held.
func (s *story) step() uint64 {
	step := uint64(0)
	for _, pulse := range s.nodes {
		step = max(step, pulse.Step)
	}
	return step
}

// hear takes one event of the log.
func (s *story) hear(event events.Event) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if take := takers[event.Kind]; take != nil {
		if err := take(s, event); err != nil {
			s.held = fmt.Sprintf("the log holds what its schema refuses: %v", err)
		}
	}
	s.tell()
}

// tell wakes whoever waits for the story to go on.
func (s *story) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

var takers = map[events.Kind]func(*story, events.Event) error{
	events.JoinRequested:       (*story).requested,
	events.LeaveRequested:      (*story).requested,
	events.ConnectRequested:    (*story).requested,
	events.DisconnectRequested: (*story).requested,
	events.NodeLost:            (*story).lost,
	events.LeaseTaken:          (*story).leaseTaken,
	events.MembershipRefused:   taker((*story).refused),
	events.NegotiationOpened:   taker((*story).opened),
	events.RestorationAsked:    taker((*story).restorationRequested),
	events.RestorationPlanned:  taker((*story).restorationPlanned),
	events.RestorationDone:     taker((*story).restorationDone),
	events.Committed:           taker((*story).committed),
	events.PlanCommitted:       taker((*story).planCommitted),
	events.PlanActivated:       taker((*story).planActivated),
	events.ClusterHeld:         taker((*story).clusterHeld),
	events.TrainingDigested:    taker((*story).digested),
	events.TrainingCompleted:   taker((*story).completed),
}

func taker[T any, P interface {
	*T
	events.Payload
}](take func(*story, events.Event, T)) func(*story, events.Event) error {
	return func(s *story, event events.Event) error {
		payload, err := events.Open[T, P](event)
		if err == nil {
			take(s, event, payload)
		}
		return err
	}
}

// requested notes when a fact or request that may bring a change was logged.
func (s *story) requested(event events.Event) error {
	s.logged[event.ID] = event.Logged
	return nil
}

// lost notes a failure. The failure of a node that is in no plan, because it joined or left just then, needs no new
// plan.
func (s *story) lost(event events.Event) error {
	for _, change := range s.changes {
		if change.Kind != events.ChangeFailure || change.node != event.Subject || s.plan == nil {
			continue
		}
		if _, member := s.plan.Member(event.Subject); !member {
			change.DetectedSeconds = since(change.done, event.Logged)
			change.Healed = true
		}
	}
	return s.requested(event)
}

// refused ends what a node asked for and will not get.
func (s *story) refused(_ events.Event, refusal events.Refusal) {
	for _, change := range s.changes {
		if change.Kind == refusal.Refused && change.node == refusal.Node && change.Generation == 0 {
			change.Refused = refusal.Reason
		}
	}
}

// leaseTaken ends the restart of a service: the new instance acts for the cluster.
func (s *story) leaseTaken(event events.Event) error {
	for _, change := range s.changes {
		if change.service == event.Subject && !change.Healed && event.Logged.After(change.done) {
			change.DetectedSeconds = event.Logged.Sub(change.done).Seconds()
			change.NextStepSeconds = change.DetectedSeconds
			change.Healed = true
			change.StallSeconds, change.StallSteps = s.gaps.stall()
		}
	}
	return nil
}

func (s *story) opened(_ events.Event, opening events.Opening) {
	s.planned[opening.Negotiation] = planned{changes: opening.Changes}
	for _, change := range s.changes {
		for _, negotiated := range opening.Changes {
			if change.Generation == 0 && change.matches(negotiated) {
				change.Negotiations++
				change.cause = negotiated.Cause
			}
		}
	}
}

func (s *story) restorationRequested(_ events.Event, request events.RestorationRequest) {
	negotiated := s.planned[request.Negotiation]
	negotiated.holders, negotiated.units = request.Holders, request.Units
	s.planned[request.Negotiation] = negotiated
}

func (s *story) restorationPlanned(event events.Event, restoration events.Restoration) {
	negotiated := s.planned[restoration.Negotiation]
	negotiated.at, negotiated.transferred, negotiated.restoration = event.Logged, event.Logged, restoration
	s.planned[restoration.Negotiation] = negotiated
}

func (s *story) restorationDone(event events.Event, done events.Completion) {
	negotiated := s.planned[done.Negotiation]
	negotiated.transferred = event.Logged
	s.planned[done.Negotiation] = negotiated
}

func (s *story) committed(event events.Event, commitment events.Commitment) {
	negotiated := s.planned[commitment.Negotiation]
	for _, change := range s.changes {
		for _, ended := range negotiated.changes {
			if change.Generation != 0 || !change.matches(ended) {
				continue
			}
			change.Generation = commitment.Generation
			change.DetectedSeconds = since(change.done, s.logged[change.cause])
			change.PlannedSeconds = since(change.done, negotiated.at)
			change.TransferredSeconds = since(change.done, negotiated.transferred)
			change.CommittedSeconds = since(change.done, event.Logged)
			change.BytesMoved, change.NaiveBytes = negotiated.restoration.BytesMoved, negotiated.restoration.NaiveBytes
			change.Policy, change.Shape = policyOf(negotiated.restoration.Plan), negotiated.restoration.Plan.Shape()
			change.LeastBytes, change.leastKnown = leastBytes(negotiated.restoration.Plan, negotiated.holders, negotiated.units)
			change.Sources = sourcesOf(negotiated.restoration.Plan, change.node)
		}
	}
	s.held = ""
}

func since(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }

func (s *story) planCommitted(_ events.Event, plan events.Plan) {
	s.plan = &plan
}

func (s *story) clusterHeld(_ events.Event, hold events.Hold) { s.held = hold.Reason }

func (s *story) digested(_ events.Event, digests events.Digests) {
	if !digests.Final {
		return
	}
	s.worksUnder(digests.Generation, digests.Node)
	for _, row := range digests.Units {
		if s.digests[row.Unit] == nil {
			s.digests[row.Unit] = map[string]bool{}
		}
		s.digests[row.Unit][row.Digest] = true
	}
}
