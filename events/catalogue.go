package events

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is what an event says: an entity (a noun) and a verb (a past participle), joined by a dot.
type Kind string

// Row is one line of the catalogue.
type Row struct {
	Kind   Kind
	Says   string         // in one sentence, for the README and AsyncAPI
	SaidBy []string       // services by name; "node" stands for an agent or trainer, speaking for itself
	New    func() Payload // an empty payload to decode into
	Plan   bool           // lives in the write-once plan stream
}

// Version is that of all events, as their types end.
const Version = "v1"

// Type returns the CloudEvents type. The version changes only when the meaning does; fields are only added.
func (k Kind) Type() string { return "io.reknit." + string(k) + "." + Version }

// KindOf returns the kind of a CloudEvents type.
func KindOf(ceType string) (Kind, error) {
	entityAndVerb, _ := strings.CutPrefix(ceType, "io.reknit.")
	kind := Kind(strings.TrimSuffix(entityAndVerb, "."+Version))
	if _, known := kind.Row(); known && kind.Type() == ceType {
		return kind, nil
	}
	return "", fmt.Errorf("type %q: expected a type of the catalogue, such as %q", ceType, NodeLost.Type())
}

// Row returns the catalogue's row of a kind; ok is false for a kind that is not in it.
func (k Kind) Row() (row Row, ok bool) {
	row, ok = rows[k]
	return row, ok
}

// rows is the catalogue by kind: each event that is heard is looked up several times.
var rows = func() map[Kind]Row {
	rows := make(map[Kind]Row, len(Catalogue))
	for _, row := range Catalogue {
		rows[row.Kind] = row
	}
	return rows
}()

// SubjectName returns the NATS subject of an event.
func (e Event) SubjectName() string {
	if row, _ := e.Kind.Row(); row.Plan {
		return PlanSubject(e.Cluster, e.Subject)
	}
	return EventSubject(e.Cluster, e.Kind, e.Subject)
}

// SubjectBy returns the NATS subject of an event where the server knows who speaks, as on a secured installation. A node's words about a
// unit have its id as the last token. Other nodes speak of that unit too, and the log keeps the newest of each subject: so nobody's
// words displace another's. The node is "*" in a filter, and empty where nobody proves who speaks.
func (e Event) SubjectBy(node string) string {
	row, _ := e.Kind.Row()
	if node == "" || e.Kind.About() != AboutUnit || !slices.Contains(row.SaidBy, "node") {
		return e.SubjectName()
	}
	return e.SubjectName() + "." + node
}

// SubjectOn returns where an event is published on a secured installation, or on another.
func (e Event) SubjectOn(secured bool) string {
	if node, isNode := strings.CutPrefix(e.Source, NodeSource("")); isNode && secured {
		return e.SubjectBy(node)
	}
	return e.SubjectName()
}

// BelongsOn reports whether a subject is an event's, on whichever installation.
func (e Event) BelongsOn(subject string) bool {
	return subject == e.SubjectName() || subject == e.SubjectOn(true)
}

// AllOf returns the filters of all events of a kind on a secured installation, or on another. There are two of a kind that has the
// speaker in its subject: the log may have events of a build, or of an installation, that had not.
func AllOf(cluster string, kind Kind, secured bool) []string {
	all := Event{Kind: kind, Cluster: cluster, Subject: "*"}
	return slices.Compact([]string{all.SubjectName(), all.SubjectBy(AnySpeaker(secured))})
}

// AnySpeaker is the last token of a subject on which everybody is heard who may speak there; empty where nobody proves who speaks. It has a
// reason beside that: a server lets a consumer deliver in the account of the services whatever a node has it read, but to a subject alone
// to which somebody subscribes by that very name.
func AnySpeaker(secured bool) string {
	if secured {
		return "*"
	}
	return ""
}

// EventSubject returns the subject of a fact. Cluster and id may be "*", which makes it a filter.
func EventSubject(cluster string, kind Kind, id string) string {
	return "reknit.event." + cluster + "." + string(kind) + "." + id
}

// PlanSubject returns the subject of a committed plan; generation may be "*".
func PlanSubject(cluster, generation string) string {
	return "reknit.plan." + cluster + "." + generation
}

// PulseSubject returns the core NATS subject of a node's heartbeats; node may be "*".
func PulseSubject(cluster, node string) string { return "reknit.pulse." + cluster + "." + node }

// ProbeSubject returns the core NATS request subject on which a node's agent answers probes.
func ProbeSubject(cluster, node string) string { return "reknit.probe." + cluster + "." + node }

// PolicySubject returns the core NATS request subject on which a policy plug-in of the planner answers a PlanRequest
// with a PolicyReply, both as plain JSON.
func PolicySubject(cluster, name string) string { return "reknit.policy." + cluster + "." + name }

// subjectTo returns a subject on which somebody speaks to a node or a service. On a secured installation the speaker's id is the last
// token, and the server lets nobody publish another's. Elsewhere nobody proves who speaks, and the speaker is empty.
func subjectTo(root, cluster, whom, speaker string) string {
	subject := root + "." + cluster + "." + whom
	if speaker != "" {
		subject += "." + speaker
	}
	return subject
}

// ShardSubject returns the core NATS request subject on which a node is asked to put what it gives somebody into the
// hub's store, too, because that one cannot reach it.
func ShardSubject(cluster, node, speaker string) string {
	return subjectTo("reknit.shard", cluster, node, speaker)
}

// PreCopySubject returns the core NATS request subject on which a node is asked for layers that it is to give, and for
// what each step changes in them, while training goes on.
func PreCopySubject(cluster, node, speaker string) string {
	return subjectTo("reknit.precopy", cluster, node, speaker)
}

// KeepSubject returns the core NATS request subject on which a node is asked to keep a part of a snapshot in its memory.
func KeepSubject(cluster, node, speaker string) string {
	return subjectTo("reknit.keep", cluster, node, speaker)
}

// LeaseSubject returns the core NATS request subject on which the instance of a service that acts for the cluster
// answers as long as it works.
func LeaseSubject(cluster, service, speaker string) string {
	return subjectTo("reknit.lease", cluster, service, speaker)
}

// ShardBucketOf returns the bucket of a node's own shard store.
func ShardBucketOf(node string) string { return "shards-" + node }

// RelaySubject returns the core NATS subject that carries a node's data-plane frames where no direct link may
// be used.
func RelaySubject(cluster, node, speaker string) string {
	return subjectTo("reknit.relay", cluster, node, speaker)
}

// Authorised reports whether source may say an event of this kind: "/" and a service that the catalogue names, or
// "/node/" and a node's id. The reader of the payload is to check that the node speaks of itself.
func (r Row) Authorised(source string) bool {
	speaker, isRooted := strings.CutPrefix(source, "/")
	name, node, hasID := strings.Cut(speaker, "/")
	if !isRooted || hasID != (name == "node") || hasID && !Token(node) {
		return false
	}
	return slices.Contains(r.SaidBy, name)
}

// Asks reports whether an event of this kind asks for something, and is to count once: said again it would ask for that again.
func (k Kind) Asks() bool { return strings.HasSuffix(string(k), "-requested") || k == LogAccepted }

// NodeSource returns the source of what a node says.
func NodeSource(node string) string { return "/node/" + node }

// A user may ask for a change of links, and for a node to leave, also on the monitor's page; everything else has an owner.
const anyone = "user"

const (
	JoinRequested       Kind = "membership.join-requested"
	LeaveRequested      Kind = "membership.leave-requested"
	JoinDelayed         Kind = "membership.join-delayed"
	LeaveDelayed        Kind = "membership.leave-delayed"
	MembershipRefused   Kind = "membership.refused"
	ConnectRequested    Kind = "link.connect-requested"
	DisconnectRequested Kind = "link.disconnect-requested"
	LinkMeasured        Kind = "link.measured"
	LinkLost            Kind = "link.lost"
	LinkRestored        Kind = "link.restored"
	NodeSuspected       Kind = "node.suspected"
	NodeCleared         Kind = "node.cleared"
	NodeExited          Kind = "node.exited"
	NodeLost            Kind = "node.lost"
	NodeProfiled        Kind = "node.profiled"
	SiteSuspected       Kind = "site.suspected"
	SiteCleared         Kind = "site.cleared"
	StepBroken          Kind = "step.broken"
	StepDelayed         Kind = "step.delayed"
	ReleaseRequested    Kind = "step.release-requested"
	ReleaseRefused      Kind = "step.release-refused"
	StepReleased        Kind = "step.released"
	NegotiationOpened   Kind = "negotiation.opened"
	Consented           Kind = "negotiation.consented"
	ConsentDelayed      Kind = "negotiation.delayed"
	LinksMeasured       Kind = "negotiation.measured"
	Prepared            Kind = "negotiation.prepared"
	Promised            Kind = "negotiation.promised"
	Scheduled           Kind = "negotiation.scheduled"
	Committed           Kind = "negotiation.committed"
	Aborted             Kind = "negotiation.aborted"
	NegotiationOverdue  Kind = "negotiation.overdue"
	PlanRequested       Kind = "plan.requested"
	PlanProposed        Kind = "plan.proposed"
	PlanDeferred        Kind = "plan.deferred"
	PlanRefused         Kind = "plan.refused"
	PlanCommitted       Kind = "plan.committed"
	PlanActivated       Kind = "plan.activated"
	PlanMeasured        Kind = "plan.measured"
	RestorationAsked    Kind = "restoration.requested"
	RestorationPlanned  Kind = "restoration.planned"
	RestorationRefused  Kind = "restoration.refused"
	PreCopyStarted      Kind = "precopy.started"
	RestorationDone     Kind = "restoration.completed"
	RestorationFailed   Kind = "restoration.failed"
	ShardOffered        Kind = "shard.offered"
	ShardReceived       Kind = "shard.received"
	PreCopyCaughtUp     Kind = "precopy.caught-up"
	ClusterHeld         Kind = "cluster.held"
	TrainingDigested    Kind = "training.digested"
	TrainingCompleted   Kind = "training.completed"
	StopRequested       Kind = "training.stop-requested"
	StopRefused         Kind = "training.stop-refused"
	TrainingStopped     Kind = "training.stopped"
	ResetRequested      Kind = "training.reset-requested"
	ResetRefused        Kind = "training.reset-refused"
	TrainingReset       Kind = "training.reset"
	ReplicaDiverged     Kind = "replica.diverged"
	SnapshotRequested   Kind = "snapshot.requested"
	SnapshotWritten     Kind = "snapshot.written"
	SnapshotFailed      Kind = "snapshot.failed"
	SnapshotResumed     Kind = "snapshot.resumed"
	SnapshotCompleted   Kind = "snapshot.completed"
	SnapshotOverdue     Kind = "snapshot.overdue"
	WithdrawalRequested Kind = "snapshot.withdrawal-requested"
	SnapshotWithdrawn   Kind = "snapshot.withdrawn"
	EventRefused        Kind = "event.refused"
	LeaseTaken          Kind = "lease.taken"
	LogAccepted         Kind = "log.accepted"
)

// Catalogue lists every event, in the order in which a change brings them about.
var Catalogue = []Row{
	{JoinRequested, "A node asks to take part.", []string{"node"}, func() Payload { return new(Join) }, false},
	{LeaveRequested, "A node is to go, before a deadline if it has one (`deadlineSeconds`, else 0).", []string{"node", anyone, "monitor"}, func() Payload { return new(Leave) }, false},
	{JoinDelayed, "A node that asked to take part is asked to consent only later, and why.", []string{"negotiator"}, func() Payload { return new(JoinDelay) }, false},
	{LeaveDelayed, "The others cannot do without a leaver by its deadline, as soon as that is known.", []string{"negotiator"}, func() Payload { return new(LeaveDelay) }, false},
	{MembershipRefused, "A request was refused, and why.", []string{"negotiator"}, func() Payload { return new(Refusal) }, false},
	{ConnectRequested, "A link between two nodes is to be used.", []string{"node", anyone}, func() Payload { return new(LinkRequest) }, false},
	{DisconnectRequested, "A link between two nodes is no longer to be used.", []string{"node", anyone}, func() Payload { return new(LinkRequest) }, false},
	{LinkMeasured, "How good a link is, in one direction.", []string{"monitor"}, func() Payload { return new(Measurement) }, false},
	{LinkLost, "Two living nodes cannot reach each other directly.", []string{"monitor"}, func() Payload { return new(LinkState) }, false},
	{LinkRestored, "A lost link works again.", []string{"monitor"}, func() Payload { return new(LinkState) }, false},
	{NodeSuspected, "A node may have failed; nothing is done yet.", []string{"monitor"}, func() Payload { return new(NodeState) }, false},
	{NodeCleared, "A suspected node is well.", []string{"monitor"}, func() Payload { return new(NodeState) }, false},
	{NodeExited, "The process that a node trains with is gone or hangs, as the agent beside it saw.", []string{"node"}, func() Payload { return new(Exit) }, false},
	{NodeLost, "A node has failed.", []string{"monitor"}, func() Payload { return new(NodeState) }, false},
	{SiteSuspected, "Most nodes of a site fell silent at once: its way to the hub, rather than they.", []string{"monitor"}, func() Payload { return new(SiteState) }, false},
	{SiteCleared, "A suspected site is heard again.", []string{"monitor"}, func() Payload { return new(SiteState) }, false},
	{NodeProfiled, "A node's measured speed, what its layers take, and its memory.", []string{"node"}, func() Payload { return new(Profile) }, false},
	{StepBroken, "A node's step cannot end, though everybody may live.", []string{"node"}, func() Payload { return new(BrokenStep) }, false},
	{StepDelayed, "Others have waited long for a node in their step, and what it does meanwhile; nothing is done yet.", []string{"monitor"}, func() Payload { return new(StepDelay) }, false},
	{ReleaseRequested, "A step that is held is to be tried again, or its samples passed over.", []string{anyone}, func() Payload { return new(ReleaseRequest) }, false},
	{ReleaseRefused, "A step is not released, and why.", []string{"negotiator"}, func() Payload { return new(ReleaseRefusal) }, false},
	{StepReleased, "A step is held no longer: it is tried again, or its samples are passed over.", []string{"negotiator"}, func() Payload { return new(Release) }, false},
	{NegotiationOpened, "A change is negotiated; members consent and say what they hold.", []string{"negotiator"}, func() Payload { return new(Opening) }, false},
	{Consented, "A member's answer to an opening, with its holdings.", []string{"node"}, func() Payload { return new(Consent) }, false},
	{ConsentDelayed, "A member will answer later: its trainer is busy.", []string{"node"}, func() Payload { return new(Delay) }, false},
	{LinksMeasured, "The links that members measured, each once.", []string{"negotiator"}, func() Payload { return new(Measured) }, false},
	{PlanRequested, "A plan is needed; the request holds all a planner must know.", []string{"negotiator"}, func() Payload { return new(PlanRequest) }, false},
	{PlanProposed, "The plan found, with every candidate that was weighed.", []string{"planner"}, func() Payload { return new(Proposal) }, false},
	{PlanDeferred, "Waiting for lost nodes to come back is better than any plan without them, and for how long.", []string{"planner"}, func() Payload { return new(Deferral) }, false},
	{PlanRefused, "No plan is possible, and why.", []string{"planner"}, func() Payload { return new(Failure) }, false},
	{RestorationAsked, "A proposal is to be mapped onto the nodes and what they hold.", []string{"negotiator"}, func() Payload { return new(RestorationRequest) }, false},
	{RestorationPlanned, "The restorer's answer: who becomes whom, what moves from whom, the all-reduce rounds.", []string{"restorer"}, func() Payload { return new(Restoration) }, false},
	{RestorationRefused, "The proposal cannot be restored, and why.", []string{"restorer"}, func() Payload { return new(Failure) }, false},
	{PreCopyStarted, "Layers begin to move while training goes on.", []string{"negotiator"}, func() Payload { return new(PreCopyStart) }, false},
	{PreCopyCaughtUp, "A receiver has its layers as of a recent step and applies what each step changes, or says why it does not.", []string{"node"}, func() Payload { return new(CaughtUp) }, false},
	{Prepared, "The plan stands; each member promises the step at which it will stop.", []string{"negotiator"}, func() Payload { return new(Preparation) }, false},
	{Promised, "A member's promise not to pass a step under the old plan.", []string{"node"}, func() Payload { return new(Promise) }, false},
	{Scheduled, "All members stop at one step; shards move there.", []string{"negotiator"}, func() Payload { return new(Schedule) }, false},
	{ShardOffered, "Manifest of a layer's parts that a source puts into its object store.", []string{"node"}, func() Payload { return new(Offer) }, false},
	{ShardReceived, "Receipt: a node read back and verified the layers it needs.", []string{"node"}, func() Payload { return new(Receipt) }, false},
	{RestorationDone, "Every receiver holds every layer it needs, verified.", []string{"restorer"}, func() Payload { return new(Completion) }, false},
	{RestorationFailed, "A transfer cannot end well, and why.", []string{"node", "restorer"}, func() Payload { return new(Failure) }, false},
	{PlanCommitted, "The plan of a generation, written once; trainers follow it.", []string{"negotiator"}, func() Payload { return new(Plan) }, true},
	{Committed, "The negotiation ended with a committed plan.", []string{"negotiator"}, func() Payload { return new(Commitment) }, false},
	{Aborted, "The negotiation ended without a plan, and why.", []string{"negotiator"}, func() Payload { return new(Abort) }, false},
	{NegotiationOverdue, "Somebody was waited for too long; the negotiator decides when it hears this.", []string{"negotiator"}, func() Payload { return new(Overdue) }, false},
	{PlanActivated, "A node completed its first step under a plan, with the stall it saw.", []string{"node"}, func() Payload { return new(Activation) }, false},
	{PlanMeasured, "How long the steps of a plan take, from the first few nodes of it.", []string{"node"}, func() Payload { return new(Pace) }, false},
	{ClusterHeld, "No plan is possible until the world changes, why, and for whom the cluster waits.", []string{"negotiator"}, func() Payload { return new(Hold) }, false},
	{TrainingDigested, "Digests of the layers a node holds at a step.", []string{"node"}, func() Payload { return new(Digests) }, false},
	{TrainingCompleted, "The job is done: all who were to make its last step have made it. Nobody is missed from here on.", []string{"negotiator"}, func() Payload { return new(JobEnd) }, false},
	{ReplicaDiverged, "Replicas of a layer differ, and who is in the minority.", []string{"restorer"}, func() Payload { return new(Divergence) }, false},
	{StopRequested, "Training is to stop after a step that all make, with a snapshot of it.", []string{anyone}, func() Payload { return new(StopRequest) }, false},
	{StopRefused, "Training does not stop, and why.", []string{"negotiator"}, func() Payload { return new(StopRefusal) }, false},
	{SnapshotRequested, "All who train stop after this step, and write a snapshot of it, unless their scripts keep the state.", []string{"negotiator"}, func() Payload { return new(SnapshotRequest) }, false},
	{TrainingStopped, "Training has stopped, with a snapshot, from which later joiners go on.", []string{"negotiator"}, func() Payload { return new(JobStop) }, false},
	{ResetRequested, "Training is to begin anew, at its first step: what was trained is given up.", []string{anyone},
		func() Payload { return new(ResetRequest) }, false},
	{ResetRefused, "Training does not begin anew, and why.", []string{"negotiator"}, func() Payload { return new(ResetRefusal) }, false},
	{TrainingReset, "All training so far is given up: training begins at its first step, of whatever job the first node to join then brings.",
		[]string{"negotiator"}, func() Payload { return new(JobReset) }, false},
	{SnapshotWritten, "A node wrote its part of a snapshot.", []string{"node"}, func() Payload { return new(SnapshotPart) }, false},
	{SnapshotFailed, "A node could not write its part of a snapshot, and why: each finding once until it writes again.", []string{"node"},
		func() Payload { return new(SnapshotFailure) }, false},
	{SnapshotResumed, "A node that could not write its parts of snapshots writes them again.", []string{"node"},
		func() Payload { return new(SnapshotPart) }, false},
	{SnapshotCompleted, "All units of a snapshot are written: training can go back to it.", []string{"restorer"}, func() Payload { return new(CompleteSnapshot) }, false},
	{SnapshotOverdue, "Units of a snapshot are not written by when those of the second one after it are.", []string{"restorer"}, func() Payload { return new(OverdueSnapshot) }, false},
	{WithdrawalRequested, "A node without room wants to remove its part of a snapshot of which it has not heard that it is complete.", []string{"node"},
		func() Payload { return new(SnapshotPart) }, false},
	{SnapshotWithdrawn, "A node's part of a snapshot that is not complete counts no more, and may be removed.", []string{"restorer"},
		func() Payload { return new(SnapshotPart) }, false},
	{EventRefused, "A message that was no event of this catalogue, quarantined.", []string{"monitor", "negotiator", "planner", "restorer"}, func() Payload { return new(Quarantine) }, false},
	{LogAccepted, "An operator accepts a log that is older than what living nodes trained: the cluster goes on from what they hold.", []string{anyone}, func() Payload { return new(Acceptance) }, false},
	{LeaseTaken, "A service instance acts for the cluster from here on; older instances are fenced.", []string{"monitor", "negotiator", "planner", "restorer"}, func() Payload { return new(Lease) }, false},
}
