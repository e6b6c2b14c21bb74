package local

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
)

// complete ends the job.
func (r *rig) complete(step uint64) {
	r.Helper()
	end := r.speaker.First(time.Now(), "end", events.TrainingCompleted, "opticks", &events.JobEnd{
		Generation: 1, Step: step, Nodes: []string{"n1"},
	})
	if _, err := r.bus.Publish(r.Context(), end); err != nil {
		r.Fatal(err)
	}
}

func TestWhoComesToACompleteJobIsToldThatNothingIsLeftToTrain(t *testing.T) {
	r := newRig(t)
	c := r.join(usualJoin)
	r.complete(9)
	if left := c.next(orderLeft, Report{}); !strings.Contains(left.Reason, "complete") {
		t.Errorf("it is told %q", left.Reason)
	}
}

// It would be started again, as often as it may be, to the same end.
func TestAScriptWhoseClientFoundAMistakeInItDoesNotJoinAndIsNotStartedAgain(t *testing.T) {
	r := newRig(t)
	c := &client{rig: r, http: r.dial()}
	var failed failure
	c.expect(http.StatusBadRequest, &failed, "POST", "/v1/join", `{"mistaken": "steps: expected a whole number of 1 or more, got 0"}`)
	why := r.server.Refused()
	if why == nil || why.Error() != failed.What || !strings.HasPrefix(failed.What, "steps: expected") {
		t.Errorf("it is answered %q, and not started again because of %v", failed.What, why)
	}
}

// refuse refuses the join of a member.
func (r *rig) refuse(member events.Member, otherJob bool) {
	r.Helper()
	refused := r.speaker.First(time.Now(), member.Incarnation, events.MembershipRefused, member.Node, &events.Refusal{
		Node: member.Node, Incarnation: member.Incarnation, Refused: events.ChangeJoin, Reason: "it is", OtherJob: otherJob,
	})
	if _, err := r.bus.Publish(r.Context(), refused); err != nil {
		r.Fatal(err)
	}
}

func TestWhoTrainsAnotherJobIsToldWhatToDoAboutIt(t *testing.T) {
	r := newRig(t)
	c := r.join(usualJoin)
	r.refuse(c.member, true)
	var failed failure
	c.expect(http.StatusServiceUnavailable, &failed, "POST", "/v1/next", `{}`)
	if !strings.Contains(failed.What, "it is") || !strings.Contains(failed.Fix, "reknit cluster reset") {
		t.Errorf("its call is answered with %+v", failed)
	}
}

func TestWhoIsRefusedForNowIsToldSoAndAsksAgainLaterAndLaterUntilItIsTaken(t *testing.T) {
	r := newRig(t)
	c := r.join(usualJoin)
	adopt := make(chan Order, 1)
	go func() { adopt <- c.next(orderAdopt, Report{}) }()
	began := time.Now()
	r.refuse(c.member, false)
	c.member.Incarnation = await[events.Join](r, events.JoinRequested).Incarnation
	r.refuse(c.member, false)
	c.member.Incarnation = await[events.Join](r, events.JoinRequested).Incarnation
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("it asked twice again within %v: expected that it waits for a second, and for two", took)
	}
	if said, _ := c.line()["waits"].(string); !strings.Contains(said, "asks again in") || !strings.Contains(said, ": it is") {
		t.Errorf("it is told %q", said)
	}
	r.commit(0, c.member)
	c.next(orderStep, Report{Order: (<-adopt).ID})
}

// To ask again would end the membership of the other.
func TestWhoIsRefusedForNowEndsWhereAnotherProcessTookItsName(t *testing.T) {
	r := newRig(t)
	c := r.join(usualJoin)
	subject := events.EventSubject(r.speaker.Cluster, events.JoinRequested, c.member.Node)
	asked, _, err := r.bus.LastEvent(t.Context(), events.EventStream, subject)
	if err != nil {
		t.Fatal(err)
	}
	join, err := events.Open[events.Join](asked)
	if err != nil {
		t.Fatal(err)
	}
	join.Incarnation = "another"
	speaker := events.Speaker{Source: asked.Source, Cluster: r.speaker.Cluster}
	if _, err := r.bus.Publish(t.Context(), speaker.First(time.Now(), "another", events.JoinRequested, join.Node, &join)); err != nil {
		t.Fatal(err)
	}
	r.refuse(c.member, false)
	var failed failure
	c.expect(http.StatusServiceUnavailable, &failed, "POST", "/v1/next", `{}`)
	if !strings.Contains(failed.What, "another process") {
		t.Errorf("its call is answered with %+v", failed)
	}
}

func TestWhoIsRefusedForNowMayLeave(t *testing.T) {
	r := newRig(t)
	c := r.join(usualJoin)
	r.refuse(c.member, false)
	c.line()
	r.server.Leave("maintenance", time.Minute)
	c.next(orderLeft, Report{})
}

// A script that asks whenever it is told would ask for good, of a cluster that refuses the last node.
func TestWhoAsksToLeaveIsNotToldOfItsOwnWishAndOfEachOtherOnce(t *testing.T) {
	r := newRig(t)
	stays := make(chan struct{}, 8)
	r.config.Stays = func() { stays <- struct{}{} }
	r.server.Close()
	r.serve()
	c, _ := r.train()
	r.server.Leave("a signal", time.Minute)
	if said := c.line(); said["leaving"] != "a signal" {
		t.Fatalf("it hears %v, expected the signal", said)
	}
	for n := range 3 {
		await[events.Leave](r, events.LeaveRequested)
		r.refuseLeave(c.member, n)
		<-stays
		c.expect(http.StatusOK, nil, "POST", "/v1/leave", `{"reason": "my own"}`)
	}
	await[events.Leave](r, events.LeaveRequested)
	r.abandon(c.member)
	if said := c.line(); said["abort"] == nil {
		t.Errorf("it hears %v, expected no more of its leave", said)
	}
}

// refuseLeave refuses that a member leaves, for the nth time.
func (r *rig) refuseLeave(member events.Member, n int) {
	r.Helper()
	refused := r.speaker.First(time.Now(), itoa(uint64(n)), events.MembershipRefused, member.Node, &events.Refusal{
		Node: member.Node, Refused: events.ChangeLeave, Reason: "the last one",
	})
	if _, err := r.bus.Publish(r.Context(), refused); err != nil {
		r.Fatal(err)
	}
}

// It named the plain reset, which loses what was trained.
func TestWhoHasOtherStepsThanTheJobIsToldToGoOnFromItsSnapshot(t *testing.T) {
	err := fmt.Errorf("%w: %s expected 300 as in the cluster's job, got 200", agent.ErrOtherJob, events.OtherSteps)
	if failed := failureOf(err); !strings.Contains(failed.Fix, "reknit cluster reset --from-snapshot") {
		t.Errorf("it is told to %s", failed.Fix)
	}
}
