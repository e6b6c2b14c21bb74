package machine

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// world plays everybody the negotiator talks to: trainers that consent and promise, a planner that puts everybody
// into one pipeline each, a restorer that moves what it is told. What it hears is queued and answered in turn.
type world struct {
	t          *testing.T
	machine    *Machine
	now        time.Time
	skew       time.Duration // from the negotiator's clock to that of the log
	sequence   uint64
	queue      []events.Event // not yet heard by the negotiator
	heard      []events.Event // by the negotiator, in order
	said       []events.Event // by the negotiator, in order
	deaf       map[string]bool
	transfer   bool            // every plan moves something
	seconds    float64         // that it is expected to take; a step takes one
	rigid      map[string]bool // who joins and cannot follow
	refusal    string          // why receivers do not follow
	behind     string          // who holds up transfers that do not end in time, as the restorer says
	blind      bool            // the restorer has lost sight of the transfer
	split      bool            // every plan gives layer 2 of the last pipeline to the newest node alone
	step       uint64
	mute       map[events.Kind]bool // what the world does not answer
	process    map[string]string    // incarnation of each node's process
	neighbours map[string][]string  // that nodes want, as their joins say
	site       map[string]string    // where nodes stand, as their joins say
	host       map[string]string    // of the address of a node's join; empty: its name
	able       map[string]bool      // processes that can copy while they train, as their joins said
	opened     *events.Opening      // of the negotiation under way
	plan       *events.Plan         // in force

	stages     int    // that a pipeline of the job has at least
	batch      int    // of the job of who joins; zero: 12
	partitions int    // of the optimizer state; every pipeline keeps all
	alone      string // keeps the last of them, and nobody else does
	batchRule  *events.BatchRule
	replicas   string
	steps      uint64 // of the job of who joins; zero: not known

	agentSeconds float64 // of the agents of who joins; zero: they start no scripts

	gives bool   // who joins runs no script, and gives what the last one left
	words string // that the job of who joins has its digest of; empty: of "job"

	tiers bool                         // whoever joins may have snapshots
	lasts map[string][]string          // by node: the tiers that it tells as it consents to a stop
	reads map[string][]events.Snapshot // what each node can read, where it is asked
	lacks int                          // who trains holds the units from this one on

	stragglers map[string]bool // do not make the step at which all stop

	trained   map[string]*events.Trained // what nodes held before they joined, all of it
	remembers map[string]*events.Plan    // the plan that each tells where it is recalled
	digest    string                     // of what members hold who are asked for it; empty: "good"
}

func newWorld(t *testing.T, nodes int) *world { return newPartitionedWorld(t, nodes, 0) }

func newPartitionedWorld(t *testing.T, nodes, partitions int) *world {
	w := newEmptyWorld(t, nodes, partitions)
	w.begin(nodes)
	return w
}

// begin has nodes join, which make the first plan.
func (w *world) begin(nodes int) {
	for i := range nodes {
		w.join(fmt.Sprintf("n%d", i+1))
	}
	w.run()
}

// newEmptyWorld is one whose first plan waits for so many nodes.
func newEmptyWorld(t *testing.T, nodes, partitions int) *world {
	return &world{
		t: t, partitions: partitions, now: time.Unix(1_800_000_000, 0).UTC(), deaf: map[string]bool{},
		rigid: map[string]bool{}, process: map[string]string{}, site: map[string]string{}, host: map[string]string{},
		able: map[string]bool{}, mute: map[events.Kind]bool{},
		machine: New(Settings{
			Cluster: "opticks", StartNodes: nodes, AnswerTimeout: 5 * time.Second, TransferTime: time.Minute,
			PreCopySteps: 1, FailuresPrior: 1e-6, AttemptsLimit: 3, HoldTime: 30 * time.Second,
		}),
	}
}

// restart makes the negotiator anew of what it remembers.
func (w *world) restart() {
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	w.machine = New(w.machine.settings)
	if err := w.machine.Restore(snapshot); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) hear(kind events.Kind, source, subject string, payload events.Payload) {
	w.sequence++
	speaker := events.Speaker{Source: source, Cluster: "opticks"}
	event := speaker.First(w.now, fmt.Sprint(w.sequence), kind, subject, payload)
	event.Logged, event.Sequence = w.now.Add(w.skew), w.sequence
	w.queue = append(w.queue, event)
}

// run lets the negotiator hear all that is queued, and all that is answered, until nobody speaks.
func (w *world) run() {
	for len(w.queue) > 0 {
		w.hearNext()
	}
}

// hearNext lets the negotiator hear the next event of the queue.
func (w *world) hearNext() {
	event := w.queue[0]
	w.queue = w.queue[1:]
	w.heard = append(w.heard, event)
	said, err := w.machine.Handle(event)
	if err != nil {
		w.t.Fatalf("%s: %v", event.Kind, err)
	}
	w.takeSaid(said)
}

func (w *world) takeSaid(said []events.Event) {
	for _, event := range said {
		w.said = append(w.said, event)
		w.note(event)
		w.answer(event)
	}
}

// note remembers the negotiation under way and the plan in force.
func (w *world) note(event events.Event) {
	switch event.Kind {
	case events.NegotiationOpened:
		opening := must[events.Opening](w.t, event)
		w.opened = &opening
	case events.PlanCommitted:
		plan := must[events.Plan](w.t, event)
		w.plan = &plan
	case events.Committed, events.Aborted:
		if w.opened != nil && w.opened.Negotiation == event.Subject {
			w.opened = nil
		}
	}
}

// tick lets time pass, a tick every 250 ms.
func (w *world) tick(after time.Duration) {
	for end := w.now.Add(after); w.now.Before(end); {
		w.now = w.now.Add(250 * time.Millisecond)
		w.takeSaid(w.machine.Tick(w.now))
		w.run()
	}
}

func (w *world) join(node string) {
	w.able[node] = !w.rigid[node]
	w.process[node] = fmt.Sprintf("%s-%d", node, w.sequence)
	layer := events.LayerProfile{ParameterBytes: 100, OptimizerBytes: 200, GradientBytes: 50, ForwardSeconds: 1, BackwardSeconds: 2}
	memory := int64(1 << 30)
	if w.gives {
		memory = onlyGives
	}
	w.hear(events.JoinRequested, "/node/"+node, node, &events.Join{
		Node: node, Incarnation: w.process[node], Address: cmp.Or(w.host[node], node) + ":1", MemoryBytes: memory, PreCopies: w.able[node],
		Snapshots: w.tiers, Site: w.site[node], Neighbours: w.neighbours[node], Trained: w.trained[node],
		AgentSeconds: w.agentSeconds,
		Job: events.Job{
			Digest: events.Digest([]byte(cmp.Or(w.words, "job"))), Steps: w.steps, Layers: []events.LayerProfile{layer, layer, layer},
			GlobalBatch: cmp.Or(w.batch, 12),
			MicroBatch:  1, Stages: events.Bounds{Min: w.stages}, OptimizerPartitions: w.partitions,
			BatchRule: w.batchRule, Replicas: w.replicas,
		},
	})
}

func (w *world) lose(node string) {
	if process := w.process[node]; process != "" {
		w.hear(events.NodeLost, "/monitor", node, &events.NodeState{Node: node, Incarnation: process})
	}
}

func (w *world) answer(event events.Event) {
	if w.mute[event.Kind] {
		return
	}
	switch event.Kind {
	case events.TrainingCompleted, events.TrainingStopped, events.TrainingReset: // it hears its own word
		w.sequence++
		event.Logged, event.Sequence = w.now, w.sequence
		w.queue = append(w.queue, event)
	case events.NegotiationOverdue: // the negotiator hears its own fact, behind what was logged before, and once: the stream drops repeats
		if slices.ContainsFunc(w.heard, func(before events.Event) bool { return before.ID == event.ID }) {
			return
		}
		w.sequence++
		event.Logged, event.Sequence = w.now.Add(w.skew), w.sequence
		w.queue = append(w.queue, event)
		if w.phase() == protocol.Transferring && !w.blind {
			w.hear(events.RestorationFailed, "/restorer", "r",
				&events.Failure{Negotiation: event.Subject, Node: w.behind, Reason: "unit 1: not offered in time"})
		}
	case events.NegotiationOpened:
		w.consent(must[events.Opening](w.t, event))
	case events.PlanRequested:
		w.propose(must[events.PlanRequest](w.t, event))
	case events.RestorationAsked:
		w.restore(must[events.RestorationRequest](w.t, event))
	case events.PreCopyStarted:
		w.follow(must[events.PreCopyStart](w.t, event))
	case events.Prepared:
		preparation := must[events.Preparation](w.t, event)
		for _, member := range w.opened.Members {
			if !w.deaf[member.Node] {
				w.hear(events.Promised, "/node/"+member.Node, member.Node,
					&events.Promise{Negotiation: preparation.Negotiation, Node: member.Node, StopStep: w.step + 2})
			}
		}
	case events.SnapshotRequested:
		for _, member := range w.opened.Members {
			if !w.deaf[member.Node] && !w.stragglers[member.Node] {
				w.makes(member.Node, must[events.SnapshotRequest](w.t, event).Step)
			}
		}
	case events.Scheduled:
		w.hear(events.RestorationDone, "/restorer", "r", &events.Completion{Negotiation: must[events.Schedule](w.t, event).Negotiation})
	}
}

func must[T any, P interface {
	*T
	events.Payload
}](t *testing.T, event events.Event) T {
	t.Helper()
	payload, err := events.Open[T, P](event)
	if err != nil {
		t.Fatalf("%s says what its own schema refuses: %v", event.Kind, err)
	}
	return payload
}

func (w *world) consent(opening events.Opening) {
	for _, member := range opening.Members {
		if w.deaf[member.Node] {
			continue
		}
		consent := &events.Consent{Negotiation: opening.Negotiation, Node: member.Node, Incarnation: member.Incarnation, Accepted: true, Step: w.step}
		if past := w.trained[member.Node]; past != nil && opening.Generation == past.Generation+1 && len(opening.Recalls) == 0 {
			consent.Trained, consent.Claims = past.Generation, claimed(past.Step, "good", []int{0, 1, 2}[w.lacks:]...)
		}
		if slices.Contains(opening.Recalls, member.Node) {
			consent.Plan = w.remembers[member.Node]
		}
		if w.trains(member) || opening.Generation == 1 || opening.Begins {
			units := events.Range{First: w.lacks, End: 3 * (1 + w.partitions)}
			consent.Holdings = []events.Holding{{Units: units, Steps: []uint64{w.step}, Current: !opening.Abandon}}
		}
		if slices.Contains(opening.Digests, member.Node) {
			consent.Trained, consent.Claims = opening.Generation-1, claimed(w.step, cmp.Or(w.digest, "good"), 0, 1, 2)
		}
		if opening.Snapshots {
			consent.Snapshots = w.reads[member.Node]
		}
		if opening.Stop {
			consent.Tiers = w.lasts[member.Node]
		}
		if !opening.Abandon {
			consent.Measurements = measured(member.Node, opening.Connect)
		}
		w.hear(events.Consented, "/node/"+member.Node, member.Node, consent)
	}
}

// measured is what a node measures of its links among some.
func measured(node string, among []events.Pair) (links []events.Measurement) {
	for _, pair := range among {
		for _, ends := range [][2]string{{pair.A, pair.B}, {pair.B, pair.A}} {
			if ends[0] == node {
				links = append(links,
					events.Measurement{From: ends[0], To: ends[1], RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e8})
			}
		}
	}
	return links
}

// propose gives every node a pipeline of its own.
func (w *world) propose(request events.PlanRequest) {
	batch, scale := request.Job.BatchOf(len(request.Nodes))
	batch = max(batch, len(request.Nodes))
	plan := events.Plan{
		Cluster: "opticks", Generation: request.Generation, Policy: "repipeline", LearningRateScale: scale,
		Data: events.Data{GlobalBatch: batch, MicroBatch: 1}, Parent: "to be filled in",
		Predicted: events.Predicted{StepSeconds: 1},
	}
	for i, node := range request.Nodes {
		plan.Nodes = append(plan.Nodes, node.Member)
		share := batch / len(request.Nodes)
		if i < batch%len(request.Nodes) {
			share++
		}
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: share, Stages: []events.Stage{{Node: node.Node, Layers: events.Range{First: 0, End: 3}}}})
		for partition := range w.partitions {
			if w.alone != "" && (node.Node == w.alone) != (partition == w.partitions-1) {
				continue
			}
			plan.Pipelines[i].Partitions = append(plan.Pipelines[i].Partitions, partition)
		}
	}
	if w.split {
		divide(&plan)
	}
	w.hear(events.PlanProposed, "/planner", "p", &events.Proposal{Negotiation: request.Negotiation, Plan: plan})
}

// divide makes one pipeline of two stages, of which the newest node alone has the last layer.
func divide(plan *events.Plan) {
	last := len(plan.Nodes) - 1
	plan.Pipelines = []events.Pipeline{{MicroBatches: 12, Stages: []events.Stage{
		{Node: plan.Nodes[0].Node, Layers: events.Range{First: 0, End: 2}}, {Node: plan.Nodes[last].Node, Layers: events.Range{First: 2, End: 3}},
	}}}
}

// restore brings two layers of the first holder to everybody who holds none, or else to the first node.
func (w *world) restore(request events.RestorationRequest) {
	plan := request.Proposal.Plan
	plan.Predicted.TransitionSeconds = w.seconds
	if w.transfer && len(request.Holders) > 0 {
		plan.Migration.ShardBytes = 100
		for _, to := range receiversOf(plan.Nodes, request.Holders) {
			for layer := range 2 {
				plan.Migration.Transfers = append(plan.Migration.Transfers, events.Transfer{Unit: layer, To: to, Bytes: 300,
					Sources: []events.Source{{Node: request.Holders[0].Node, Shards: events.Range{First: 0, End: 3}}}})
			}
		}
	}
	w.hear(events.RestorationPlanned, "/restorer", "r", &events.Restoration{Negotiation: request.Negotiation, Plan: plan})
}

func receiversOf(nodes []events.Member, holders []events.Holder) []string {
	var receivers []string
	for _, node := range nodes {
		if !slices.ContainsFunc(holders, func(holder events.Holder) bool { return holder.Node == node.Node }) {
			receivers = append(receivers, node.Node)
		}
	}
	if len(receivers) == 0 {
		return []string{nodes[len(nodes)-1].Node}
	}
	return receivers
}

// follow has each receiver say that it follows, as often as it is to have a layer.
func (w *world) follow(start events.PreCopyStart) {
	for _, transfer := range start.Plan.Migration.Transfers {
		for _, node := range []string{transfer.To, transfer.Sources[0].Node} {
			if !w.able[node] {
				w.t.Errorf("%s cannot copy while it trains", node)
			}
		}
		if !w.deaf[transfer.To] {
			w.hear(events.PreCopyCaughtUp, "/node/"+transfer.To, transfer.To,
				&events.CaughtUp{Negotiation: start.Negotiation, Node: transfer.To, Step: w.step, Reason: w.refusal})
		}
	}
}

// listen has everybody answer again, and hear first what they missed: the log loses nothing.
func (w *world) listen() {
	w.deaf = map[string]bool{}
	w.run()
	for _, event := range w.said {
		late := event.Kind == events.NegotiationOpened || event.Kind == events.PreCopyStarted || event.Kind == events.Prepared
		if under := w.opened; under != nil && late && event.Subject == under.Negotiation {
			w.answer(event)
		}
	}
	w.run()
}
