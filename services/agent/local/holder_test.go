package local

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// atOnce has agents wait for no script.
func atOnce(t *testing.T) {
	before := scriptTime
	scriptTime = 0
	t.Cleanup(func() { scriptTime = before })
}

// holderJoins returns the member that an agent without a script asks to be.
func (r *rig) holderJoins() events.Member {
	r.Helper()
	join := await[events.Join](r, events.JoinRequested)
	if join.MemoryBytes != trainable {
		r.Fatalf("it asks for a place with %d bytes: expected one in which nothing can be trained", join.MemoryBytes)
	}
	if join.Trained == nil || join.Trained.Plan == "" {
		r.Errorf("it tells that it trained %+v: expected the plan", join.Trained)
	}
	return events.Member{Node: join.Node, Incarnation: join.Incarnation, Address: join.Address, ShardAddress: join.ShardAddress}
}

// expectFolders compares how many scripts' files there are.
func (r *rig) expectFolders(expected int) {
	r.Helper()
	if left, err := filepath.Glob(filepath.Join(r.state, folderPrefix+"*")); err != nil || len(left) != expected {
		r.Errorf("there are %q, %v: expected %d", left, err, expected)
	}
}

var other = events.Member{Node: "n2", Incarnation: "x", Address: "127.0.0.1:1"}

// trainTogether trains the first step of a cluster of two.
func (r *rig) trainTogether() *client {
	r.Helper()
	c := r.join(usualJoin)
	r.commit(0, c.member, other)
	return c.trainFirst(c.next(orderStep, Report{Order: c.next(orderAdopt, Report{}).ID}))
}

func TestWhereNoScriptComesBackAnAgentGivesWhatTheLastOneLeftAndLeaves(t *testing.T) {
	atOnce(t)
	r := newRig(t)
	r.trainTogether().dies()
	self := r.holderJoins()
	r.abandon(self)
	consent := await[events.Consent](r, events.Consented)
	if consent.Trained != 1 || len(consent.Claims) != 2 || consent.Claims[1] != (events.Claim{Unit: 1, Step: 1, Digest: events.Digest(aStep)}) {
		t.Errorf("it claims %+v of plan %d: expected both units at step 1", consent.Claims, consent.Trained)
	}
	r.commitPipelines(1, []events.Member{self, other}, events.Pipeline{
		MicroBatches: 8, Stages: []events.Stage{{Node: "n2", Layers: events.Range{First: 0, End: 2}}},
	})
	await[events.Leave](r, events.LeaveRequested)
	r.expectFolders(1)
	r.commit(2, other)
	<-r.server.Released()
	r.expectFolders(0)
}

func TestWhatALaterPlanDoesWithoutIsFreed(t *testing.T) {
	r := newRig(t)
	r.trainTogether().dies()
	r.commit(1, other)
	<-r.server.Idle()
	<-r.server.Released() // at once: no script is waited for any more
	r.expectFolders(0)
}

// All who took part in the plan that did without it may have died since.
func TestWhatALaterPlanDidWithoutIsGivenWhereTheClusterIsHeldSince(t *testing.T) {
	atOnce(t)
	r := newRig(t)
	c := r.trainTogether()
	r.commit(1, other)
	r.hold("no node is left")
	c.dies()
	r.holderJoins()
}

// hold says that no plan is possible.
func (r *rig) hold(reason string) {
	r.Helper()
	held := r.speaker.First(time.Now(), reason, events.ClusterHeld, "c", &events.Hold{Reason: reason})
	if _, err := r.bus.Publish(r.Context(), held); err != nil {
		r.Fatal(err)
	}
}

func TestNobodyNeedsWhatANodeTrainedAlone(t *testing.T) {
	r := newRig(t)
	r.trainAStep().dies()
	<-r.server.Idle()
	<-r.server.Released()
}

func TestWhatOthersTrainedTooIsKeptUntilAPlanDoesWithoutIt(t *testing.T) {
	r := newRig(t)
	r.trainTogether().dies()
	<-r.server.Idle()
	released := r.server.Released()
	r.holderJoins()
	select {
	case <-released:
		t.Error("nobody is said to need it")
	default:
	}
	r.expectFolders(1)
}

func TestAScriptThatComesBackTakesOverFromItsAgent(t *testing.T) {
	atOnce(t)
	r := newRig(t)
	r.trainAStep().dies()
	r.holderJoins()
	if consent := r.join(usualJoin).claims(); len(consent.Claims) != 2 || consent.Claims[0].Step != 1 {
		t.Errorf("it claims %+v: expected both units at step 1", consent.Claims)
	}
}

func TestAnAgentThatIsPutWhereAScriptIsNeededSaysThatThereIsNone(t *testing.T) {
	atOnce(t)
	r := newRig(t)
	r.trainAStep().dies()
	r.commit(1, r.holderJoins())
	if exit := await[events.Exit](r, events.NodeExited); !exit.Keeps {
		t.Errorf("it says %+v: expected that it keeps the state", exit)
	}
	r.expectFolders(1)
}

func TestAnAgentThatEndsKeepsNothing(t *testing.T) {
	r := newRig(t)
	r.trainAStep().dies()
	r.server.Close()
	r.expectFolders(0)
	for _, holder := range r.server.kept {
		select {
		case <-holder.over:
		case <-time.After(patience):
			t.Error("a holder runs on")
		}
	}
}
