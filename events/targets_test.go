package events

import "testing"

// Each row of the catalogue, and each message beside the events, has a fuzz target: make fuzz runs all.

func FuzzMembershipJoinRequested(f *testing.F)  { fuzzEvent(f, "membership.join-requested") }
func FuzzMembershipLeaveRequested(f *testing.F) { fuzzEvent(f, "membership.leave-requested") }
func FuzzMembershipJoinDelayed(f *testing.F)    { fuzzEvent(f, "membership.join-delayed") }
func FuzzMembershipLeaveDelayed(f *testing.F)   { fuzzEvent(f, "membership.leave-delayed") }
func FuzzMembershipRefused(f *testing.F)        { fuzzEvent(f, "membership.refused") }
func FuzzLinkConnectRequested(f *testing.F)     { fuzzEvent(f, "link.connect-requested") }
func FuzzLinkDisconnectRequested(f *testing.F)  { fuzzEvent(f, "link.disconnect-requested") }
func FuzzLinkMeasured(f *testing.F)             { fuzzEvent(f, "link.measured") }
func FuzzLinkLost(f *testing.F)                 { fuzzEvent(f, "link.lost") }
func FuzzLinkRestored(f *testing.F)             { fuzzEvent(f, "link.restored") }
func FuzzNodeSuspected(f *testing.F)            { fuzzEvent(f, "node.suspected") }
func FuzzNodeCleared(f *testing.F)              { fuzzEvent(f, "node.cleared") }
func FuzzNodeExited(f *testing.F)               { fuzzEvent(f, "node.exited") }
func FuzzNodeLost(f *testing.F)                 { fuzzEvent(f, "node.lost") }
func FuzzSiteSuspected(f *testing.F)            { fuzzEvent(f, "site.suspected") }
func FuzzSiteCleared(f *testing.F)              { fuzzEvent(f, "site.cleared") }
func FuzzNodeProfiled(f *testing.F)             { fuzzEvent(f, "node.profiled") }
func FuzzStepBroken(f *testing.F)               { fuzzEvent(f, "step.broken") }
func FuzzStepDelayed(f *testing.F)              { fuzzEvent(f, "step.delayed") }
func FuzzNegotiationOpened(f *testing.F)        { fuzzEvent(f, "negotiation.opened") }
func FuzzNegotiationConsented(f *testing.F)     { fuzzEvent(f, "negotiation.consented") }
func FuzzNegotiationDelayed(f *testing.F)       { fuzzEvent(f, "negotiation.delayed") }
func FuzzPlanRequested(f *testing.F)            { fuzzEvent(f, "plan.requested") }
func FuzzPlanProposed(f *testing.F)             { fuzzEvent(f, "plan.proposed") }
func FuzzNegotiationMeasured(f *testing.F)      { fuzzEvent(f, "negotiation.measured") }
func FuzzPlanDeferred(f *testing.F)             { fuzzEvent(f, "plan.deferred") }
func FuzzPlanRefused(f *testing.F)              { fuzzEvent(f, "plan.refused") }
func FuzzRestorationRequested(f *testing.F)     { fuzzEvent(f, "restoration.requested") }
func FuzzRestorationPlanned(f *testing.F)       { fuzzEvent(f, "restoration.planned") }
func FuzzRestorationRefused(f *testing.F)       { fuzzEvent(f, "restoration.refused") }
func FuzzPrecopyStarted(f *testing.F)           { fuzzEvent(f, "precopy.started") }
func FuzzPrecopyCaughtUp(f *testing.F)          { fuzzEvent(f, "precopy.caught-up") }
func FuzzNegotiationPrepared(f *testing.F)      { fuzzEvent(f, "negotiation.prepared") }
func FuzzNegotiationPromised(f *testing.F)      { fuzzEvent(f, "negotiation.promised") }
func FuzzNegotiationScheduled(f *testing.F)     { fuzzEvent(f, "negotiation.scheduled") }
func FuzzShardOffered(f *testing.F)             { fuzzEvent(f, "shard.offered") }
func FuzzShardReceived(f *testing.F)            { fuzzEvent(f, "shard.received") }
func FuzzRestorationCompleted(f *testing.F)     { fuzzEvent(f, "restoration.completed") }
func FuzzRestorationFailed(f *testing.F)        { fuzzEvent(f, "restoration.failed") }
func FuzzPlanCommitted(f *testing.F)            { fuzzEvent(f, "plan.committed") }
func FuzzNegotiationCommitted(f *testing.F)     { fuzzEvent(f, "negotiation.committed") }
func FuzzNegotiationAborted(f *testing.F)       { fuzzEvent(f, "negotiation.aborted") }
func FuzzNegotiationOverdue(f *testing.F)       { fuzzEvent(f, "negotiation.overdue") }
func FuzzPlanActivated(f *testing.F)            { fuzzEvent(f, "plan.activated") }
func FuzzPlanMeasured(f *testing.F)             { fuzzEvent(f, "plan.measured") }
func FuzzClusterHeld(f *testing.F)              { fuzzEvent(f, "cluster.held") }
func FuzzTrainingDigested(f *testing.F)         { fuzzEvent(f, "training.digested") }
func FuzzTrainingCompleted(f *testing.F)        { fuzzEvent(f, "training.completed") }
func FuzzTrainingStopRequested(f *testing.F)    { fuzzEvent(f, "training.stop-requested") }
func FuzzTrainingStopRefused(f *testing.F)      { fuzzEvent(f, "training.stop-refused") }
func FuzzTrainingStopped(f *testing.F)          { fuzzEvent(f, "training.stopped") }
func FuzzSnapshotRequested(f *testing.F)        { fuzzEvent(f, "snapshot.requested") }
func FuzzSnapshotWritten(f *testing.F)          { fuzzEvent(f, "snapshot.written") }
func FuzzSnapshotCompleted(f *testing.F)        { fuzzEvent(f, "snapshot.completed") }
func FuzzSnapshotOverdue(f *testing.F)          { fuzzEvent(f, "snapshot.overdue") }
func FuzzReplicaDiverged(f *testing.F)          { fuzzEvent(f, "replica.diverged") }
func FuzzEventRefused(f *testing.F)             { fuzzEvent(f, "event.refused") }
func FuzzLogAccepted(f *testing.F)              { fuzzEvent(f, "log.accepted") }
func FuzzLeaseTaken(f *testing.F)               { fuzzEvent(f, "lease.taken") }

func FuzzMessagePulse(f *testing.F)          { fuzzMessage[Pulse](f, "pulse") }
func FuzzMessageProbe(f *testing.F)          { fuzzMessage[Probe](f, "probe") }
func FuzzMessageProbeAnswer(f *testing.F)    { fuzzMessage[ProbeAnswer](f, "probe-answer") }
func FuzzMessageViaHub(f *testing.F)         { fuzzMessage[ViaHub](f, "via-hub") }
func FuzzMessagePrecopyRequest(f *testing.F) { fuzzMessage[PreCopyRequest](f, "precopy-request") }
func FuzzMessagePrecopyReply(f *testing.F)   { fuzzMessage[PreCopyReply](f, "precopy-reply") }
func FuzzMessageKeeping(f *testing.F)        { fuzzMessage[Keeping](f, "keeping") }
func FuzzMessageKeepReply(f *testing.F)      { fuzzMessage[KeepReply](f, "keep-reply") }
func FuzzMessagePolicyRequest(f *testing.F)  { fuzzMessage[PlanRequest](f, "policy-request") }
func FuzzMessagePolicyReply(f *testing.F)    { fuzzMessage[PolicyReply](f, "policy-reply") }
