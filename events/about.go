package events

import "strings"

// About is what the id in an event's subject names.
type About string

// The things that an id names. An event that a node says of itself carries the node's id, so that a server can forbid
// it to speak for another.
const (
	AboutNode        About = "node"
	AboutLink        About = "link"
	AboutNegotiation About = "negotiation"
	AboutGeneration  About = "generation"
	AboutUnit        About = "unit"
	AboutCluster     About = "cluster"
	AboutService     About = "service"
	AboutMessage     About = "message"
	AboutTier        About = "tier"
)

// abouts tells what the id names where the kind's entity does not tell.
var abouts = map[Kind]About{
	ConnectRequested: AboutLink, DisconnectRequested: AboutLink,
	LinkMeasured: AboutLink, LinkLost: AboutLink, LinkRestored: AboutLink,
	Consented: AboutNode, ConsentDelayed: AboutNode, Promised: AboutNode, ShardReceived: AboutNode,
	PreCopyCaughtUp: AboutNode, PlanActivated: AboutNode, PlanMeasured: AboutNode, RestorationFailed: AboutNode,
	PlanCommitted: AboutGeneration,
	ShardOffered:  AboutUnit, ReplicaDiverged: AboutUnit, ClusterHeld: AboutCluster, LeaseTaken: AboutService, LogAccepted: AboutCluster,
	ReleaseRequested: AboutCluster, ReleaseRefused: AboutCluster, StepReleased: AboutCluster,
	TrainingCompleted: AboutCluster, StopRequested: AboutCluster, StopRefused: AboutCluster, TrainingStopped: AboutCluster,
	ResetRequested: AboutCluster, ResetRefused: AboutCluster, TrainingReset: AboutCluster,
	EventRefused:    AboutMessage,
	SnapshotWritten: AboutNode, SnapshotFailed: AboutNode, SnapshotResumed: AboutNode,
	SnapshotCompleted: AboutTier, SnapshotOverdue: AboutTier,
	WithdrawalRequested: AboutNode, SnapshotWithdrawn: AboutNode,
}

// About returns what the subject of an event of the kind names.
func (k Kind) About() About {
	if special, ok := abouts[k]; ok {
		return special
	}
	switch entity, _, _ := strings.Cut(string(k), "."); entity {
	case "membership", "node", "step", "training":
		return AboutNode
	}
	return AboutNegotiation
}
