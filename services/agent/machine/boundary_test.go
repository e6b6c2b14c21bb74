package machine

import (
	"testing"

	"github.com/reknit/reknit/events"
)

func prepare(n *node, id string, generation uint64) {
	n.t.Helper()
	n.hears(events.Prepared, &events.Preparation{Negotiation: id, Generation: generation})
}

func TestANodeTrainsOnUntilTheStepItPromised(t *testing.T) {
	n := trainingNode(t, 20)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	n.expect("say negotiation.consented g4 true at 20: 1 holdings")
	prepare(n, "g4", 4)
	n.expect("say negotiation.promised g4 22")
	n.stands(21)
	n.expect("train under 3")
	n.stands(22)
	n.expect()
	n.commits(plan(4, 22, "n1", "n2"))
	n.expect("adopt [{0 2}] at 22", "train under 4, new")
}

func TestWhoStoodAtItsBoundaryIsToldAllTheSameThatTheOthersGaveUpTheirSteps(t *testing.T) {
	n := trainingNode(t, 20)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.stands(21)
	n.stands(22)
	n.told = nil
	n.hears(events.NegotiationOpened, opening("g4-again", 4, true, "n1", "n2"))
	n.expect("tell holdings", "say negotiation.consented g4-again true at 22: 0 holdings")
	n.commits(plan(4, 22, "n1", "n2"))
	n.expect("adopt [{0 2}] at 22", "train under 4, new, after steps were given up")
	n.commits(plan(5, 23, "n1", "n2"))
	n.stands(23)
	n.expect("adopt [{0 2}] at 23", "train under 5, new")
}

func TestNobodyPromisesAStepBeyondTheEndOfTraining(t *testing.T) {
	n := trainingNode(t, 99, func(s *Settings) { s.Job.Steps = 100 })
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.expect("say negotiation.consented g4 true at 99: 1 holdings", "say negotiation.promised g4 100")
}

func TestACommittedPlanTakesOverAtItsStepAndNotBefore(t *testing.T) {
	n := trainingNode(t, 20)
	n.commits(plan(4, 22, "n1", "n2"))
	n.stands(21)
	n.expect("train under 3")
	n.stands(22)
	n.expect("adopt [{0 2}] at 22", "train under 4, new")
	n.stands(23)
	n.expect("train under 4")
}

func TestAFailurePassesOverAPlanWhoseStepIsNeverReached(t *testing.T) {
	n := trainingNode(t, 20)
	n.commits(plan(4, 22, "n1", "n2"))
	n.hears(events.NegotiationOpened, opening("g5", 5, true, "n1", "n2"))
	n.expect("abandon")
	n.stands(20)
	n.expect("tell holdings", "say negotiation.consented g5 true at 20: 0 holdings")
	n.commits(plan(5, 20, "n1", "n2"))
	n.expect("adopt [{0 2}] at 20", "train under 5, new, after steps were given up")
}

// A commit may come while the plan before it has not taken over yet: then both do, each at its step.
func TestTwoCommittedPlansTakeOverInTheirOrder(t *testing.T) {
	n := trainingNode(t, 11)
	n.commits(plan(4, 12, "n1", "n2"))
	n.hears(events.NegotiationOpened, opening("g5", 5, false, "n1", "n2"))
	prepare(n, "g5", 5)
	n.expect("say negotiation.consented g5 true at 11: 1 holdings", "say negotiation.promised g5 13")
	n.commits(plan(5, 14, "n1", "n2"))
	n.stands(12)
	n.expect("adopt [{0 2}] at 12", "train under 4, new")
	n.stands(13)
	n.expect("train under 4")
	n.stands(14)
	n.expect("adopt [{0 2}] at 14", "train under 5, new")
}

// Found by chaos seed 19: plan 5 took over at step 60, where negotiation 6 had everybody stop too; the nodes went
// on with step 61 as soon as they had switched, and nobody came to the transfer.
func TestASwitchAtAStepThatIsPromisedToAnotherNegotiationReleasesNobody(t *testing.T) {
	n := trainingNode(t, 58, func(s *Settings) { s.Job.Steps = 60 })
	n.commits(plan(4, 60, "n1", "n2"))
	n.hears(events.NegotiationOpened, opening("g5", 5, false, "n1", "n2"))
	prepare(n, "g5", 5)
	n.stands(59)
	n.told = nil
	n.stands(60)
	n.expect("adopt [{0 2}] at 60")
	n.hears(events.Aborted, &events.Abort{Negotiation: "g5", Generation: 5, Reason: "test"})
	n.expect("train under 4, new")
}

func TestANodeThatGetsOtherLayersAfterTheLastStepTellsTheirDigests(t *testing.T) {
	n := trainingNode(t, 59, func(s *Settings) { s.Job.Steps = 60 })
	n.stands(60)
	n.expect()
	n.commits(plan(4, 60, "n1", "n2"))
	n.expect("adopt [{0 2}] at 60", "train under 4, new")
	n.stands(60)
	n.expect()
}

func TestANodeSaysAndAdoptsItsPartitionsBesideItsLayers(t *testing.T) {
	partitioned := func(generation, resume uint64, partitions ...int) events.Plan {
		plan := plan(generation, resume, "n1", "n2")
		plan.Pipelines[0].Partitions, plan.Pipelines[1].Partitions = partitions, []int{0, 1, 2}
		return plan
	}
	n := newNode(t)
	n.stands(0)
	n.commits(partitioned(3, 40, 0))
	n.expect("adopt [{0 2} {2 4}] at 40", "train under 3, new")
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	n.expect("say negotiation.consented g4 true at 40: 2 holdings")
	n.commits(partitioned(4, 41, 0, 2))
	n.stands(41)
	n.expect("adopt [{0 2} {2 4} {6 8}] at 41", "train under 4, new")
}

// Adopting a plan may take minutes. What is heard meanwhile is answered.
func TestWhileTheStateAdoptsTheNodeAnswers(t *testing.T) {
	n := newNode(t)
	n.slow = true
	n.stands(0)
	n.commits(plan(3, 10, "n1", "n2"))
	n.expect("adopt [{0 2}] at 10")
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	prepare(n, "g4", 4)
	n.expect("say negotiation.consented g4 true at 10: 1 holdings", "say negotiation.promised g4 10")
	n.hears(events.Aborted, &events.Abort{Negotiation: "g4", Generation: 4, Reason: "test"})
	n.expect()
	n.answer()
	n.expect("train under 3, new")
}

// The negotiator would take its silence for death.
func TestANodeWhoseStateAdoptsSaysThatItsConsentComesLater(t *testing.T) {
	n := newNode(t)
	n.slow = true
	n.stands(0)
	n.commits(plan(3, 10, "n1", "n2"))
	n.told = nil
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.expect("say negotiation.delayed g4: it adopts plan 3")
	n.answer()
	n.expect("tell holdings")
	n.answer()
	n.expect("say negotiation.consented g4 true at 10: 0 holdings")
}

func TestANodeWhoseStateGivesWhileItTrainsSaysThatItsConsentComesLater(t *testing.T) {
	n := trainingNode(t, 10)
	n.machine.Capturing(true)
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.expect("abandon", "say negotiation.delayed g4: it gives units while it trains")
	n.machine.Capturing(false)
	n.hears(events.NegotiationOpened, opening("g4-again", 4, true, "n1", "n2"))
	n.expect()
}

func TestANodeThatTakesLongToTellWhatItHoldsSaysOnceThatItsConsentComesLater(t *testing.T) {
	n := newNode(t)
	n.slow = true
	n.stands(0)
	n.commits(plan(3, 10, "n1", "n2"))
	n.answer()
	n.told = nil
	n.hears(events.NegotiationOpened, opening("g4", 4, true, "n1", "n2"))
	n.stands(10)
	n.told = nil
	n.do(n.machine.Late())
	n.do(n.machine.Late())
	n.expect("say negotiation.delayed g4: it tells what it holds")
	n.answer()
	n.do(n.machine.Late())
	n.expect("say negotiation.consented g4 true at 10: 0 holdings")
}

func TestAStateThatCannotAdoptEndsTheSession(t *testing.T) {
	n := newNode(t)
	n.slow = true
	n.stands(0)
	n.commits(plan(3, 10, "n1", "n2"))
	n.ends(Failed{Task: n.tasks[0].(Adopt).Task, Reason: "no such version"})
	n.expect("adopt [{0 2}] at 10", "end left=false plan 3: no such version")
}
