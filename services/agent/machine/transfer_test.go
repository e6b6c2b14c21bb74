package machine

import (
	"testing"

	"github.com/reknit/reknit/events"
)

var unitDigest = events.Digest([]byte("unit"))

func offer(node string, unit int, step uint64) *events.Offer {
	return &events.Offer{
		Negotiation: "g4", Node: node, Unit: unit, Step: step, Digest: unitDigest, Bytes: 4,
		Parts: []events.Part{{Digest: unitDigest, End: 4}},
	}
}

// joiningNode returns n1, a newcomer that has consented to g4.
func joiningNode(t *testing.T) *node {
	n := newNode(t)
	n.stands(0)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2", "n3"))
	n.told = nil
	return n
}

func TestAReceiverFetchesEachUnitOnceAllItsSourcesHaveOfferedItAtTheRightStep(t *testing.T) {
	n := joiningNode(t)
	schedule := giving(plan(4, 12, "n1", "n2", "n3"), 0, 1)
	schedule.Migration.Transfers[1].Sources = []events.Source{
		{Node: "n2", Shards: events.Range{End: 2}}, {Node: "n3", Shards: events.Range{First: 2, End: 4}},
	}
	n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: schedule})
	n.expect("open g4")
	n.hears(events.ShardOffered, offer("n2", 1, 12))
	n.hears(events.ShardOffered, offer("n3", 1, 11)) // another step
	n.hears(events.ShardOffered, offer("n3", 0, 12)) // it is no source
	n.expect()
	n.hears(events.ShardOffered, offer("n3", 1, 12))
	n.expect("fetch 1")
	n.hears(events.ShardOffered, offer("n2", 0, 12))
	n.hears(events.ShardOffered, offer("n2", 0, 12))
	n.expect("fetch 0")
	n.answer()
	n.expect()
	n.answer()
	n.expect("say shard.received g4 2 units")
	n.commits(plan(4, 12, "n1", "n2", "n3"))
	n.expect("close g4", "adopt [{0 2}] at 12", "train under 4, new")
}

func TestAGiverExportsWhereAllStandAndOffersWhatItExported(t *testing.T) {
	n := trainingNode(t, 10)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2", "n3"))
	prepare(n, "g4", 4)
	given := plan(4, 12, "n1", "n2", "n3")
	given.Migration = events.Migration{ShardBytes: 1, Transfers: []events.Transfer{
		{Unit: 1, To: "n3", Bytes: 4, Sources: []events.Source{{Node: "n1", Shards: events.Range{End: 4}}}},
		{Unit: 1, To: "n2", Bytes: 4, Sources: []events.Source{{Node: "n1", Shards: events.Range{End: 4}}}},
	}}
	n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: given})
	n.stands(11)
	n.told = nil
	n.stands(12)
	n.expect("open g4", "export 1 at 12")
	n.answer()
	n.expect("say shard.offered g4 1")
	n.hears(events.Aborted, &events.Abort{Negotiation: "g4", Generation: 4, Reason: "test"})
	n.expect("close g4", "train under 3")
}

func TestAMoveThatCannotEndWellIsSaidOnce(t *testing.T) {
	scheduledNode := func() *node {
		n := joiningNode(t)
		n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12,
			Plan: giving(plan(4, 12, "n1", "n2"), 0, 1)})
		n.told = nil
		return n
	}
	n := scheduledNode()
	long := offer("n2", 0, 12)
	long.Bytes, long.Parts[0].End = 1<<40, 1<<40
	n.hears(events.ShardOffered, long)
	n.hears(events.ShardOffered, offer("n2", 1, 12))
	n.expect("say restoration.failed g4 by itself or [n2]: unit 0: n2: bytes: expected at most the node's memory, 1048576, got 1099511627776")

	n = scheduledNode()
	n.hears(events.ShardOffered, offer("n2", 0, 12))
	n.hears(events.ShardOffered, offer("n2", 1, 12))
	n.ends(Failed{Task: n.tasks[0].(Fetch).Task, Reason: "not to be had"})
	n.ends(Failed{Task: n.tasks[1].(Fetch).Task, Reason: "not to be had"})
	n.expect("fetch 0", "fetch 1", "say restoration.failed g4: unit 0: not to be had")
}

func TestAReceiverThatCannotVerifyAUnitNamesWhoGaveIt(t *testing.T) {
	n := joiningNode(t)
	n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: giving(plan(4, 12, "n1", "n2"), 0)})
	n.hears(events.ShardOffered, offer("n2", 0, 12))
	n.told = nil
	n.ends(Failed{Task: n.tasks[0].(Fetch).Task, Reason: "other bytes", Givers: []string{"n2"}})
	n.expect("say restoration.failed g4 by itself or [n2]: unit 0: other bytes")
}

func TestAGiverBlamesNobodyForAHubThatTakesNothing(t *testing.T) {
	n := trainingNode(t, 10)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2", "n3"))
	prepare(n, "g4", 4)
	given := plan(4, 12, "n1", "n2", "n3")
	given.Migration = events.Migration{ShardBytes: 1, Transfers: []events.Transfer{
		{Unit: 1, To: "n3", Bytes: 4, Sources: []events.Source{{Node: "n1", Shards: events.Range{End: 4}}}},
	}}
	n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: given})
	n.stands(12)
	n.told = nil
	n.ends(Failed{Task: n.tasks[0].(Export).Task, Reason: "full", Hub: true})
	n.expect("say restoration.failed g4 by nobody: unit 1: full")
}

func TestAUnitOnWhichItsHoldersDoNotAgreeIsNotFetched(t *testing.T) {
	n := joiningNode(t)
	schedule := giving(plan(4, 12, "n1", "n2", "n3"), 0)
	schedule.Migration.Transfers[0].Sources = []events.Source{
		{Node: "n2", Shards: events.Range{End: 2}}, {Node: "n3", Shards: events.Range{First: 2, End: 4}},
	}
	n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: schedule})
	other := offer("n3", 0, 12)
	other.Digest = events.Digest([]byte("other"))
	n.told = nil
	n.hears(events.ShardOffered, offer("n2", 0, 12))
	n.hears(events.ShardOffered, other)
	n.expect()
}

// Fault 20: every attempt started at zero, so that a move longer than its deadline never ended.
func TestAnotherAttemptFetchesOnlyWhatIsMissing(t *testing.T) {
	n := joiningNode(t)
	schedule := &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: giving(plan(4, 12, "n1", "n2"), 0, 1)}
	n.hears(events.Scheduled, schedule)
	n.hears(events.ShardOffered, offer("n2", 0, 12))
	n.answer()
	n.hears(events.Aborted, &events.Abort{Negotiation: "g4", Generation: 4, Reason: "too long"})
	n.hears(events.NegotiationOpened, opening("g4-again", 4, false, "n1", "n2"))
	n.told = nil
	schedule.Negotiation = "g4-again"
	n.hears(events.Scheduled, schedule)
	for unit := range 2 {
		again := offer("n2", unit, 12)
		again.Negotiation = "g4-again"
		n.hears(events.ShardOffered, again)
	}
	n.expect("open g4-again", "fetch 1")
	n.answer()
	n.expect("say shard.received g4-again 2 units")
}

func TestWhatAnEarlierAttemptFetchedHasNoEffect(t *testing.T) {
	n := joiningNode(t)
	n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: giving(plan(4, 12, "n1", "n2"), 0)})
	n.hears(events.ShardOffered, offer("n2", 0, 12))
	n.hears(events.Aborted, &events.Abort{Negotiation: "g4", Generation: 4, Reason: "test"})
	n.told = nil
	n.answer()
	n.expect()
}

func TestUnitsArePreCopiedOnceTheTrainerIsAtItsLoop(t *testing.T) {
	n := newNode(t)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	n.hears(events.PreCopyStarted, &events.PreCopyStart{Negotiation: "g4", Plan: giving(plan(4, 1, "n1", "n2"), 0)})
	n.expect("say negotiation.consented g4 true at 0: 0 holdings")
	n.stands(0)
	n.expect("precopy g4")
	n.answer()
	n.expect("say precopy.caught-up g4")
	prepare(n, "g4", 4)
	n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: giving(plan(4, 12, "n1", "n2"), 0)})
	n.hears(events.ShardOffered, offer("n2", 0, 12))
	n.expect("say negotiation.promised g4 0", "open g4", "fetch 0")
}

func TestNothingIsPreCopiedWhereTheNodeCannotOrAllStopAlready(t *testing.T) {
	n := newNode(t, func(s *Settings) { s.PreCopies = false })
	n.stands(0)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	n.told = nil
	n.hears(events.PreCopyStarted, &events.PreCopyStart{Negotiation: "g4", Plan: giving(plan(4, 1, "n1", "n2"), 0)})
	n.expect()
	n = newNode(t)
	n.hears(events.NegotiationOpened, opening("g4", 4, false, "n1", "n2"))
	n.hears(events.PreCopyStarted, &events.PreCopyStart{Negotiation: "g4", Plan: giving(plan(4, 1, "n1", "n2"), 0)})
	n.hears(events.Scheduled, &events.Schedule{Negotiation: "g4", StopStep: 12, Plan: giving(plan(4, 12, "n1", "n2"), 0)})
	n.told = nil
	n.stands(0)
	n.expect("open g4")
}
