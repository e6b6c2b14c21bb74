package machine

import (
	"fmt"
	"testing"

	"github.com/reknit/reknit/events"
)

// Seed 20230: what was given up by a reset came back with a process that had slept through it and that a plan named without a place.
func TestANodeThatComesBackTellsAsAMemberOnlyWhatThePlanCounted(t *testing.T) {
	for name, test := range map[string]struct {
		migration events.Migration
		generation,
		resume uint64
		expects string
	}{
		"nothing counted":            {events.Migration{}, 5, 16, "0 holdings"},
		"what it needs no more":      {events.Migration{Drops: []events.Drop{{Node: "n1", Unit: 1}}}, 5, 16, "1 holdings"},
		"what others need no more":   {events.Migration{Drops: []events.Drop{{Node: "n2", Unit: 1}}}, 5, 16, "0 holdings"},
		"what it gives":              {migrationFrom("n1"), 5, 16, "1 holdings"},
		"what another gives":         {migrationFrom("n2"), 5, 16, "0 holdings"},
		"it missed the plan alone":   {events.Migration{}, 4, 15, "1 holdings"},
		"it missed what all trained": {events.Migration{}, 4, 16, "0 holdings"},
	} {
		t.Run(name, func(t *testing.T) {
			n := trainingNode(t, 15)
			n.holds = []events.Holding{{Units: events.Range{End: 2}, Steps: []uint64{15}}}
			n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
			n.stands(15)
			without := plan(test.generation, test.resume, "n2")
			without.Nodes = append(without.Nodes, events.Member{Node: "n1", Incarnation: "i2", Address: "a:n1"})
			without.Migration = test.migration
			n.commits(without)
			n.told = nil
			next := opening("next", test.generation+1, true, "n1", "n2")
			next.Members[0].Incarnation = "i2"
			n.hears(events.NegotiationOpened, next)
			n.expect("tell holdings", fmt.Sprintf("say negotiation.consented next true at %d: %s", test.resume, test.expects))
		})
	}
}

// Seed 94459: the others died before they had made a step under that plan, and the new script was the only one that had what they trained.
func TestANewScriptTellsAsAMemberWhatTheLastOneLeftAtThePlansStep(t *testing.T) {
	for resume, expects := range map[uint64]string{15: "1 holdings", 14: "1 holdings", 16: "0 holdings"} {
		n := newNode(t, func(s *Settings) { s.Trained = 4 })
		n.holds = []events.Holding{{Units: events.Range{End: 2}, Steps: []uint64{15, 14}}}
		n.stands(0) // it has made no step itself
		without := plan(5, resume, "n2")
		without.Nodes = append(without.Nodes, members("n1")...)
		n.commits(without)
		n.told = nil
		n.hears(events.NegotiationOpened, opening("next", 6, true, "n1", "n2"))
		n.expect("tell holdings", fmt.Sprintf("say negotiation.consented next true at %d: %s", resume, expects))
	}
}

func migrationFrom(giver string) events.Migration {
	transfer := events.Transfer{Unit: 1, To: "n2", Bytes: 4, Sources: []events.Source{{Node: giver, Shards: events.Range{End: 4}}}}
	return events.Migration{ShardBytes: 1, Transfers: []events.Transfer{transfer}}
}

func TestWhatDidNotCountIsNotClaimedLater(t *testing.T) {
	n := trainingNode(t, 15)
	n.claims = []events.Claim{{Unit: 1, Step: 15, Digest: events.Digest(nil)}}
	n.hears(events.MembershipRefused, refusal("i1", events.RefusedMembership, false))
	n.stands(15)
	without := plan(5, 16, "n2")
	without.Nodes = append(without.Nodes, events.Member{Node: "n1", Incarnation: "i2", Address: "a:n1"})
	n.commits(without)
	n.hears(events.MembershipRefused, refusal("i2", events.RefusedMembership, false))
	n.told = nil
	again := opening("g7", 7, true, "n1", "n2")
	again.Members[0].Incarnation = "i3"
	n.hears(events.NegotiationOpened, again)
	n.expect("say negotiation.delayed g7: it digests what it claims", "tell claims",
		"say negotiation.consented g7 true at 0: 0 holdings")
}
