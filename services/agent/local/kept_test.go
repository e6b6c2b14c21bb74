package local

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

var aStep = bytes.Repeat([]byte("a step. "), 512) // what trainFirst leaves in unit 1

// dies ends the script of a client, and returns what its agent says.
func (c *client) dies() events.Exit {
	c.Helper()
	c.stream.Close()
	return await[events.Exit](c.rig, events.NodeExited)
}

// claims has a script that has just joined asked for what its node holds.
func (c *client) claims() events.Consent {
	c.Helper()
	c.start(c.Context(), "POST", "/v1/next", `{"order":0,"done":0}`)
	c.abandon(c.member)
	return await[events.Consent](c.rig, events.Consented)
}

func TestTheNextScriptOfANodeIsHandedWhatTheLastOneLeft(t *testing.T) {
	r := newRig(t)
	before := r.trainAStep()
	before.setWord(wordPhase, phaseInStep)
	if exit := before.dies(); !exit.Keeps || exit.Expected {
		t.Errorf("it says %+v: expected that its agent keeps the state", exit)
	}
	c := r.join(usualJoin)
	if c.past == nil || c.past.Generation != 1 || c.past.Plan != r.parent {
		t.Errorf("it tells that it trained %+v: expected plan 1, which is %s", c.past, r.parent)
	}
	answer := make(chan Order)
	go func() { answer <- c.next(orderAdopt, Report{}) }()
	r.abandon(c.member)
	consent := await[events.Consent](r, events.Consented)
	if consent.Trained != 1 || len(consent.Claims) != 2 || consent.Claims[1] != (events.Claim{Unit: 1, Step: 1, Digest: events.Digest(aStep)}) {
		t.Errorf("it claims %+v, trained under plan %d: expected both units at step 1 of plan 1", consent.Claims, consent.Trained)
	}
	r.commit(1, c.member)
	adopt := <-answer
	if len(adopt.Took) != 2 || adopt.Step != 1 {
		t.Errorf("it is to adopt %+v: expected both units at step 1", adopt)
	}
	if content, err := os.ReadFile(filepath.Join(c.dir, unitName(1))); err != nil || !bytes.Equal(content, aStep) {
		t.Errorf("unit 1 holds %.20q, %v", content, err)
	}
	if left, err := filepath.Glob(filepath.Join(r.state, folderPrefix+"*")); err != nil || len(left) != 1 {
		t.Errorf("there are %q: expected no folder but the new script's", left)
	}
	c.setWord(wordCompleted, 1)
	if step := c.next(orderStep, Report{Order: adopt.ID, Done: 1}); step.Index != 1 {
		t.Errorf("it goes on with step %d", step.Index)
	}
}

// A user with a mistake in the script was told to leave the agents running, for they kept what anybody can make.
func TestNothingIsKeptOfAScriptThatEndsBeforeAStepIsMade(t *testing.T) {
	r := newRig(t)
	c, _ := r.train()
	c.setWord(wordPhase, phaseInStep)
	if exit := c.dies(); exit.Keeps || exit.Expected {
		t.Errorf("it says %+v: expected that its agent keeps nothing", exit)
	}
}

func TestAStepThatWasMadeAndNotReportedIsHandedOn(t *testing.T) {
	r := newRig(t)
	before := r.trainAStep()
	before.setWord(wordPhase, phaseApplying)
	before.setWord(wordCompleted, 2)
	if exit := before.dies(); !exit.Keeps {
		t.Errorf("it says %+v", exit)
	}
	if consent := r.join(usualJoin).claims(); len(consent.Claims) != 2 || consent.Claims[0].Step != 2 {
		t.Errorf("it claims %+v: expected both units at step 2", consent.Claims)
	}
}

func TestWhatAScriptLeavesInTheMiddleOfAnUpdateIsNobodys(t *testing.T) {
	r := newRig(t)
	before := r.trainAStep()
	before.setWord(wordPhase, phaseApplying)
	if exit := before.dies(); exit.Keeps {
		t.Errorf("it says %+v: expected that nothing is kept", exit)
	}
	if consent := r.join(usualJoin).claims(); len(consent.Claims) != 0 {
		t.Errorf("it claims %+v", consent.Claims)
	}
}

func TestWhatDoesNotFitTheNextScriptIsNamedAndKept(t *testing.T) {
	r := newRig(t)
	r.trainAStep().dies()
	other := strings.Replace(usualJoin, "4096,4096", "4096,8192", 1)
	status, answer := r.call(r.dial(), "POST", "/v1/join", []byte(other))
	if status != http.StatusConflict || !bytes.Contains(answer, []byte("units: expected [4096 4096]")) {
		t.Errorf("it is answered with %d %s", status, answer)
	}
	if consent := r.join(usualJoin).claims(); len(consent.Claims) != 2 {
		t.Errorf("it claims %+v", consent.Claims)
	}
}

func TestNothingIsKeptOfAScriptThatEndedWellOrThatLives(t *testing.T) {
	r := newRig(t)
	r.trainAStep()
	r.server.Gone("exit status 0", 0)
	if exit := await[events.Exit](r, events.NodeExited); exit.Keeps {
		t.Errorf("it says %+v", exit)
	}
	if left, _ := filepath.Glob(filepath.Join(r.state, folderPrefix+"*")); len(left) != 0 {
		t.Errorf("there are %q", left)
	}
}

func TestNothingIsKeptOfAScriptWhoseAgentEndsWithItAndNobodyIsToldOtherwise(t *testing.T) {
	r := newRig(t)
	r.trainAStep()
	r.server.GiveUp("a second signal ends it: interrupt")
	if exit := await[events.Exit](r, events.NodeExited); exit.Keeps || exit.Expected || !strings.Contains(exit.Reason, "second signal") {
		t.Errorf("it says %+v: expected an end of which nothing is kept, while the script saves", exit)
	}
	status, answer := r.call(r.dial(), "POST", "/v1/join", []byte(usualJoin))
	if status != http.StatusNotFound || !strings.Contains(string(answer), "told to end") {
		t.Errorf("its next join is answered with %d %s", status, answer)
	}
	r.server.Gone("signal: killed", -1)
	if left, _ := filepath.Glob(filepath.Join(r.state, folderPrefix+"*")); len(left) != 0 {
		t.Errorf("there are %q", left)
	}
}

// Status told people to leave agents running that had ended in good order.
func TestAnAgentThatEndsTellsThatItKeepsNothingAnyMore(t *testing.T) {
	r := newRig(t)
	c := r.trainAStep()
	c.setWord(wordPhase, phaseInStep)
	kept := c.dies()
	if !kept.Keeps {
		t.Fatalf("it says %+v", kept)
	}
	r.server.Close()
	ends := await[events.Exit](r, events.NodeExited)
	if ends.Keeps || ends.Incarnation != kept.Incarnation || !strings.Contains(ends.Reason, "its agent ended") {
		t.Errorf("it says %+v: expected that its agent ended, and keeps nothing", ends)
	}
}

// The loop that gives them up is its caller's, which hears the third signal, and kills whoever does not end.
func TestWhileTheHubIsAwayAllTrainersAreGivenUpInTheTimeOfOne(t *testing.T) {
	r := newRig(t)
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		r.join(strings.Replace(usualJoin, "{", `{"node":"`+node+`",`, 1))
	}
	r.away()
	began := time.Now()
	r.server.GiveUp("a second signal ends it: interrupt")
	if took := time.Since(began); took >= tellTimeout {
		t.Errorf("its caller waits for %v", took)
	}
	r.server.Gone("signal: killed", -1)
	if took := time.Since(began); took >= 2*tellTimeout {
		t.Errorf("four take %v", took)
	}
}

func TestATrainerWhoseJoinIsUnderWayWhenAllAreGivenUpTakesNoPlace(t *testing.T) {
	r := newRig(t)
	r.server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	hub := strings.TrimPrefix(r.config.URL, "nats://")
	r.config.URL = "nats://" + listener.Addr().String()
	r.serve()
	asked, opened := make(chan struct{}, 100), make(chan struct{})
	go func() {
		for near, err := listener.Accept(); err == nil; near, err = listener.Accept() {
			asked <- struct{}{}
			go func() {
				<-opened
				if far, err := net.Dial("tcp", hub); err == nil {
					go io.Copy(far, near)
					io.Copy(near, far)
				}
			}()
		}
	}()
	go func() {
		<-asked // its join is under way
		r.server.GiveUp("a second signal ends it: interrupt")
		close(opened)
	}()
	if status, answer := r.call(r.dial(), "POST", "/v1/join", []byte(usualJoin)); status != http.StatusNotFound || r.server.Trainers() > 0 {
		t.Errorf("its join is answered with %d %s", status, answer)
	}
	if exit := await[events.Exit](r, events.NodeExited); exit.Keeps || exit.Node != "n1" {
		t.Errorf("it says %+v", exit)
	}
}

// The next script of a node may be another one: a flag was changed, say. Nobody else may have what the last one left.
func TestAScriptThatIsRefusedOrEndsBeforeItTakesUpWhatTheLastOneLeftTakesNothingAway(t *testing.T) {
	for name, ends := range map[string]func(*rig, *client){
		"it trains another job": func(r *rig, c *client) {
			r.refuse(c.member, true)
			c.expect(http.StatusServiceUnavailable, nil, "POST", "/v1/next", `{}`)
		},
		"it ends well": func(r *rig, c *client) { r.server.Gone("exit status 0", 0) },
		"it fails":     func(r *rig, c *client) { c.dies() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.trainAStep().dies()
			c := r.join(strings.Replace(usualJoin, "test", "another job", 1))
			ends(r, c)
			consent := r.join(usualJoin).claims()
			if consent.Trained != 1 || len(consent.Claims) != 2 || consent.Claims[1] != (events.Claim{Unit: 1, Step: 1, Digest: events.Digest(aStep)}) {
				t.Errorf("the script after it claims %+v, trained under plan %d: expected both units at step 1 of plan 1", consent.Claims, consent.Trained)
			}
		})
	}
}

const copiedJoin = `{"units":[4096,4096],"batch":8,"microBatch":1,"digest":"test","state":"copied"}`

func TestStateOfADeviceIsKeptWhereTheScriptCopiedItOut(t *testing.T) {
	for _, out := range []uint64{0, 1, 2} { // one more than the step at which it was copied
		r := newRig(t)
		c := r.join(copiedJoin)
		r.commit(0, c.member)
		c.trainFirst(c.next(orderStep, Report{Order: c.next(orderAdopt, Report{}).ID}))
		c.setWord(wordPhase, phaseInStep)
		c.setWord(wordOut, out)
		if exit := c.dies(); exit.Keeps != (out == 2) {
			t.Errorf("out %d: it says %+v", out, exit)
			continue
		}
		if claims := r.join(copiedJoin).claims().Claims; out == 2 && (len(claims) != 2 || claims[1].Digest != events.Digest(aStep) || claims[1].Step != 1) {
			t.Errorf("it claims %+v: expected both units at step 1", claims)
		}
	}
}

// An exception says more to somebody who looks for a bad record than the status of a process does.
func TestAnErrorThatEndsAScriptIsToldWithItsStep(t *testing.T) {
	r := newRig(t)
	c := r.trainAStep()
	c.expect(http.StatusOK, nil, "POST", "/v1/fail", `{"reason": "ValueError: record 3605"}`)
	exit := await[events.Exit](r, events.NodeExited)
	if exit.Reason != "ValueError: record 3605" || exit.Step == nil || exit.ExitCode == nil || *exit.ExitCode != 1 {
		t.Errorf("it says %+v", exit)
	}
}
