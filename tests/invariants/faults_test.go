package invariants

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/reknit/reknit/events"
)

// fault is what an invariant must find.
type fault struct {
	invariant Invariant
	plant     func(*story)
}

// faults are planted one at a time in a log that is good otherwise.
var faults = map[string]fault{
	"a fact leaves its change's trace": {traced, func(s *story) {
		cause := events.Event{ID: idAt(s, firstOf(s, events.NegotiationOpened)), Logged: begin}
		consent := events.Speaker{Source: "/node/n9", Cluster: cluster}.Say(cause, events.Consented, "n9", &events.Consent{
			Negotiation: "g0", Node: "n9", Incarnation: "x", Accepted: true,
		})
		consent.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-7bba7c9200f538cc-01"
		s.append(consent)
	}},
	"a message is missing":          {gapless, func(s *story) { s.remove(lastOf(s, events.PlanActivated)) }},
	"a message is logged too early": {gapless, func(s *story) { s.lines[5].Logged = begin }},
	"a message is no CloudEvent":    {Spoken, func(s *story) { s.lines[0].Event = json.RawMessage(`"hello"`) }},
	"an unknown word":               {Spoken, func(s *story) { s.replace(0, "lease.taken", "lease.sold") }},
	"a field out of bounds": {Spoken, func(s *story) {
		retell(s, 3, func(join *events.Join) { join.MemoryBytes = 0 })
	}},
	"a fact under another's name": {Spoken, func(s *story) { s.lines[3].Subject += "x" }},
	"a valid event is refused": {Spoken, func(s *story) {
		s.say("/monitor", events.EventRefused, "3", &events.Quarantine{Reason: "invalid"}, "")
	}},
	"an id stands for two facts": {Identified, func(s *story) {
		s.replace(3, idAt(s, 3), idAt(s, 2))
	}},
	"a node speaks for another":   {ownVoice, func(s *story) { s.replace(2, "/node/n2", "/node/n1") }},
	"a node declares a loss":      {ownVoice, func(s *story) { s.replace(lastOf(s, events.NodeLost), "/monitor", "/node/n1") }},
	"a node says another's node":  {ownVoice, func(s *story) { s.replace(firstOf(s, events.Promised), "/node/n1", "/node/n2") }},
	"a generation is skipped":     {chained, func(s *story) { s.replan(2, func(p *events.Plan) { p.Generation = 3 }) }},
	"a generation is lost":        {chained, func(s *story) { s.remove(planAt(s, 3)) }},
	"a plan has another parent":   {chained, func(s *story) { s.replan(3, func(p *events.Plan) { p.Parent = events.Digest(nil) }) }},
	"a plan changes after commit": {chained, func(s *story) { s.replan(4, func(p *events.Plan) { p.LearningRateScale = 2 }) }},
	"a plan comes twice":          {chained, func(s *story) { s.lines = append(s.lines, s.lines[planAt(s, 4)]) }},
	"a plan nobody negotiated":    {chained, func(s *story) { s.remove(lastOf(s, events.Committed)) }},
	"a layer has no holder":       {sound, func(s *story) { s.replan(2, func(p *events.Plan) { p.Pipelines[0].Stages[0].Layers.End = 1 }) }},
	"a node has two places":       {sound, func(s *story) { s.replan(4, func(p *events.Plan) { p.Pipelines[1].Stages[0].Node = "n1" }) }},
	"a plan of another cluster":   {sound, func(s *story) { s.replan(4, func(p *events.Plan) { p.Cluster = "other" }) }},
	"work goes to a node without the layers": {sound, func(s *story) {
		s.replan(2, func(p *events.Plan) {
			p.Pipelines = append(p.Pipelines, events.Pipeline{MicroBatches: 0, Stages: []events.Stage{stage("n3", 0, 4)}})
			p.Pipelines[0].MicroBatches, p.Pipelines[1].MicroBatches = 3, 3
			p.Reroutes = []events.Reroute{{From: "n3", To: "n1", MicroBatches: 3}}
		})
	}},
	"a stranger is in the plan": {active, func(s *story) { s.remove(1) }},
	"a lost node is in the plan": {active, func(s *story) {
		retell(s, firstOf(s, events.NodeLost), func(lost *events.NodeState) { lost.Node, lost.Incarnation = "n2", "n2-1" })
	}},
	"a node that left is in the plan": {active, func(s *story) {
		s.replan(4, func(p *events.Plan) { p.Nodes = append(p.Nodes, members("n2")...) })
	}},
	"an incarnation that is gone": {active, func(s *story) {
		s.insert(firstOf(s, events.NodeLost), func(s *story) { s.rejoin("n2") })
	}},
	"a node is overfilled": {fitting, func(s *story) {
		s.replan(4, func(p *events.Plan) { p.Predicted.PeakBytes["n4"] = 1201 })
	}},
	"samples are skipped": {wholeBatch, func(s *story) { s.replan(3, func(p *events.Plan) { p.Data.ConsumedSamples += 6 }) }},
	"samples are passed over, and nobody asked": {wholeBatch, func(s *story) {
		s.replan(3, func(p *events.Plan) {
			p.Data.Skipped = &events.Samples{First: p.Data.ConsumedSamples, Count: 6}
			p.Data.ConsumedSamples += 6
		})
	}},
	"the learning rate does not follow the batch": {wholeBatch, func(s *story) {
		for _, at := range positions(s, events.JoinRequested) {
			retell(s, at, func(join *events.Join) {
				join.Job.BatchRule = &events.BatchRule{SamplesPerNode: 2, LearningRate: "linear"}
			})
		}
	}},
	"the batch changes":          {wholeBatch, func(s *story) { s.replan(4, func(p *events.Plan) { p.Data.GlobalBatch, p.Data.MicroBatch = 12, 2 }) }},
	"a negotiation is forgotten": {Ended, func(s *story) { s.remove(firstOf(s, events.Aborted)) }},
	"promises are held though nothing follows": {superseded, func(s *story) {
		retell(s, firstOf(s, events.Aborted), func(abort *events.Abort) { abort.Superseded = !abort.Superseded })
	}},
	"promises are freed though they are asked again": {superseded, func(s *story) {
		retell(s, lastOf(s, events.Aborted), func(abort *events.Abort) { abort.Superseded = !abort.Superseded })
	}},
	"a broken step is forgotten": {Broken, func(s *story) {
		s.insert(firstOf(s, events.DisconnectRequested), func(s *story) { s.breaks("n1", 3) })
	}},
	"a broken step is given up twice": {Broken, func(s *story) {
		for i, at := range positions(s, events.NegotiationOpened)[2:4] {
			retell(s, at, func(opening *events.Opening) {
				opening.Abandon = true
				opening.Changes[0] = events.Change{Kind: events.ChangeBroken, Node: "n1", Cause: fmt.Sprint("c", i)}
			})
		}
	}},
	"training goes on though a step broke": {Broken, func(s *story) {
		retell(s, lastOf(s, events.NegotiationOpened), func(opening *events.Opening) {
			opening.Changes[0] = events.Change{Kind: events.ChangeBroken, Node: "n1", Cause: "c"}
		})
	}},
	"a job ends before a node's last step": {complete, func(s *story) { s.completes("n9") }},
	"a job ends twice":                     {complete, func(s *story) { s.completes("n1"); s.completes("n1") }},
	"a job is complete and renegotiated": {complete, func(s *story) {
		s.completes("n1")
		s.open("g9", 5, "", events.Change{Kind: events.ChangeFailure, Node: "n1"}, "n1")
	}},
	"a negotiation ends twice": {Ended, func(s *story) { s.again(lastOf(s, events.Committed)) }},
	"a generation is renegotiated": {Ended, func(s *story) {
		retell(s, lastOf(s, events.NegotiationOpened), func(opening *events.Opening) { opening.Generation = 3 })
	}},
	"a commit without consent": {accepted, func(s *story) { s.remove(lastOf(s, events.Consented)) }},
	"a commit against a member": {accepted, func(s *story) {
		retell(s, lastOf(s, events.Consented), func(consent *events.Consent) { consent.Accepted = false })
	}},
	"a plan before a promise": {accepted, func(s *story) {
		retell(s, firstOf(s, events.Promised), func(promise *events.Promise) { promise.StopStep = 10 })
	}},
	"a move nobody began is followed": {followed, func(s *story) { s.remove(firstOf(s, events.PreCopyStarted)) }},
	"a move is followed too early":    {followed, func(s *story) { s.swap(firstOf(s, events.PreCopyStarted), firstOf(s, events.PreCopyCaughtUp)) }},
	"who receives nothing follows": {followed, func(s *story) {
		retell(s, firstOf(s, events.PreCopyCaughtUp), func(f *events.CaughtUp) { f.Node = "n1" })
	}},
	"a holder never verified":    {Verified, func(s *story) { s.remove(lastOf(s, events.ShardReceived)) }},
	"a holder verified too late": {Verified, func(s *story) { s.swap(lastOf(s, events.ShardReceived), lastOf(s, events.Committed)) }},
	"a holder has another step": {Verified, func(s *story) {
		retell(s, lastOf(s, events.ShardReceived), func(receipt *events.Receipt) { receipt.Units[0].Step = 11 })
	}},
	"a node claims what it never had": {Verified, func(s *story) {
		retell(s, positions(s, events.Consented)[4], func(consent *events.Consent) { consent.Holdings[0].Units.First = 1 })
	}},
	"nobody can read what a plan goes back to": {Stored, func(s *story) {
		s.replan(3, func(p *events.Plan) { p.Snapshot = events.Digest(nil) })
	}},
	"a newer snapshot can be read": {Stored, func(s *story) {
		s.replan(3, func(p *events.Plan) {
			p.Snapshot = p.Parent
			s.store(p.Parent, p.ResumeStep, p.ResumeStep+1)
		})
	}},
	"readers that differ are believed": {Stored, func(s *story) { s.differ(1, "n1", "n2", "n4") }},
	"a unit is lost that a member holds": {lost, func(s *story) {
		retell(s, firstOf(s, events.Aborted), func(abort *events.Abort) { abort.Reason = nobodyHolds })
		s.insert(firstOf(s, events.Aborted), func(s *story) { s.consent("g3", "n2", "", events.Range{First: 2, End: 4}, 9) })
	}},
	"a unit is lost that a node claims": {lost, func(s *story) {
		retell(s, firstOf(s, events.Aborted), func(abort *events.Abort) { abort.Reason = nobodyHolds })
		s.insert(firstOf(s, events.Aborted), func(s *story) { s.claim("n2", "n2-2", contentOf(2, 9)) })
	}},
	"a receipt of other bytes": {OneDigest, func(s *story) {
		retell(s, lastOf(s, events.ShardReceived), func(receipt *events.Receipt) { receipt.Units[0].Digest = events.Digest(nil) })
	}},
	"a receipt without an offer": {OneDigest, func(s *story) { s.remove(lastOf(s, events.ShardOffered)) }},
	"replicas disagree": {OneDigest, func(s *story) {
		retell(s, lastOf(s, events.TrainingDigested), func(d *events.Digests) { d.Units[2].Digest = events.Digest(nil) })
	}},
	"a node goes back":           {forward, func(s *story) { s.again(firstOf(s, events.PlanActivated)) }},
	"a node trains without plan": {forward, func(s *story) { s.swap(firstOf(s, events.PlanActivated), firstOf(s, events.Committed)) }},
	"a node trains without place": {forward, func(s *story) {
		s.node("n2", events.PlanActivated, "n2", &events.Activation{Node: "n2", Generation: 4, Step: 13}, "")
	}},
	"a node trains a step again": {forward, func(s *story) {
		retell(s, lastOf(s, events.PlanActivated), func(a *events.Activation) { a.Step = 12 })
	}},
	"a join is forgotten": {Answered, func(s *story) { s.insert(firstOf(s, events.NodeLost), func(s *story) { s.join("n9") }) }},
	"training begins anew though steps were made": {begins, func(s *story) {
		retell(s, lastOf(s, events.NegotiationOpened), func(opening *events.Opening) { opening.Begins = true })
	}},
	"training is reset though nobody asked": {begins, func(s *story) {
		s.say("/negotiator", events.TrainingReset, cluster, &events.JobReset{Generation: 4, Reason: "a whim"}, "")
	}},
	"a reset is told again behind the plan that followed": {begins, func(s *story) {
		reset := &events.JobReset{Generation: 3, Reason: "longer"}
		s.insert(lastOf(s, events.Committed), func(s *story) {
			asked := s.say("/user/eva", events.ResetRequested, cluster, &events.ResetRequest{Reason: "longer"}, "")
			s.say("/negotiator", events.TrainingReset, cluster, reset, asked)
		})
		s.say("/negotiator", events.TrainingReset, cluster, reset, "")
	}},
	"a plan of before is reset": {begins, func(s *story) {
		asked := s.say("/user/eva", events.ResetRequested, cluster, &events.ResetRequest{Reason: "longer"}, "")
		s.say("/negotiator", events.TrainingReset, cluster, &events.JobReset{Generation: 3, Reason: "longer"}, asked)
	}},
	"a leave is forgotten": {Answered, func(s *story) { s.insert(firstOf(s, events.NodeLost), func(s *story) { s.wish("n1") }) }},
	"a link is forgotten": {Answered, func(s *story) {
		retell(s, lastOf(s, events.NegotiationOpened), func(opening *events.Opening) { opening.Changes = opening.Changes[:1] })
	}},
}

func TestEachPlantedFaultIsCaughtByItsInvariant(t *testing.T) { expectCaught(t, goodStory, faults) }

func expectCaught(t *testing.T, good func(*testing.T) *story, faults map[string]fault) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			s := good(t)
			fault.plant(s)
			if len(fault.invariant.Check(s.read())) == 0 {
				t.Errorf("%q was not broken; all that was: %v", fault.invariant.Says, s.read().Check())
			}
		})
	}
}

func TestEveryInvariantHasAPlantedFault(t *testing.T) {
	planted := map[string]bool{}
	for _, fault := range faults {
		planted[fault.invariant.Says] = true
	}
	for _, invariant := range All {
		if !planted[invariant.Says] {
			t.Errorf("no fault shows that %q can fail", invariant.Says)
		}
	}
}

// The two streams have no common order: who listens on core NATS hears a plan before it is stored.
func TestAPlanMayBeActivatedBeforeItIsStored(t *testing.T) {
	s := goodStory(t)
	s.swap(firstOf(s, events.PlanActivated), planAt(s, 1))
	if broken := forward.Check(s.read()); len(broken) > 0 {
		t.Errorf("broken: %v", broken)
	}
}
