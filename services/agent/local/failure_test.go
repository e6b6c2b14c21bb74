package local

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// word returns a word of the control page.
func (c *client) word(place int) uint64 {
	c.Helper()
	page, err := os.ReadFile(filepath.Join(c.dir, "control"))
	if err != nil {
		c.Fatal(err)
	}
	return binary.NativeEndian.Uint64(page[8*place:])
}

func (c *client) setWord(place int, value uint64) {
	c.Helper()
	page, err := os.OpenFile(filepath.Join(c.dir, "control"), os.O_RDWR, 0)
	if err != nil {
		c.Fatal(err)
	}
	defer page.Close()
	if _, err := page.WriteAt(binary.NativeEndian.AppendUint64(nil, value), int64(8*place)); err != nil {
		c.Fatal(err)
	}
}

func TestAStepThatIsToBeGivenUpIsToldOnBothWays(t *testing.T) {
	r := newRig(t)
	c, step := r.train()
	r.abandon(c.member)
	if said := c.line(); said["abort"] != float64(step.ID) {
		t.Errorf("expected that %d is aborted, got %v", step.ID, said)
	}
	if word := c.word(wordAbort); word != step.ID {
		t.Errorf("the control page says %d", word)
	}
}

func TestATrainerIsToldWhyTrainingWaitsAndThatItGoesOn(t *testing.T) {
	r := newRig(t)
	c := r.join(usualJoin)
	hold := events.Hold{Reason: "no live node holds layer 0; waiting for n2", Awaits: []string{"n2"}}
	held := r.speaker.First(time.Now(), "test", events.ClusterHeld, "c", &hold)
	if _, err := r.bus.Publish(r.Context(), held); err != nil {
		t.Fatal(err)
	}
	if said := c.line(); said["waits"] != hold.Reason || said["awaits"].([]any)[0] != "n2" || said["since"] == nil {
		t.Errorf("it hears %v", said)
	}
	r.commit(0, c.member)
	adopt := c.next(orderAdopt, Report{})
	c.next(orderStep, Report{Order: adopt.ID})
	if said := c.line(); said["waits"] != "" {
		t.Errorf("it hears %v: expected that training goes on", said)
	}
}

func TestATrainerIsToldThatItCannotLeaveInTime(t *testing.T) {
	r := newRig(t)
	c, _ := r.train()
	c.expect(http.StatusOK, nil, "POST", "/v1/leave", `{"reason": "preempted", "deadlineSeconds": 10}`)
	await[events.Leave](r, events.LeaveRequested)
	delayed := r.speaker.First(time.Now(), "test", events.LeaveDelayed, c.member.Node, &events.LeaveDelay{
		Node: c.member.Node, Incarnation: c.member.Incarnation, Seconds: 61, DeadlineSeconds: 10,
		Alone: []events.Range{{First: 0, End: 1}}, Reason: "the others need 61 s",
	})
	if _, err := r.bus.Publish(r.Context(), delayed); err != nil {
		t.Fatal(err)
	}
	if said := c.line(); said["late"] != "the others need 61 s" || said["seconds"] != 61.0 || len(said["alone"].([]any)) != 1 {
		t.Errorf("it hears %v", said)
	}
}

func TestWhoIsReadyCanMakeTheNextStepAndIsAskedToWhereItIsNeeded(t *testing.T) {
	r := newRig(t)
	c, step := r.train()
	r.abandon(c.member)
	c.line()
	answer := make(chan Order)
	go func() { answer <- c.next(orderApply, Report{Order: step.ID, Ready: true}) }()
	consent := await[events.Consent](r, events.Consented)
	if len(consent.Holdings) != 1 || len(consent.Holdings[0].Steps) != 2 || consent.Holdings[0].Steps[0] != 1 {
		t.Errorf("it says that it holds %+v: expected steps 1 and 0", consent.Holdings)
	}
	r.commit(1, c.member)
	apply := <-answer
	if apply.Step != 1 {
		t.Errorf("it is to apply %d", apply.Step)
	}
	adopt := c.next(orderAdopt, Report{Order: apply.ID, Done: 1})
	if next := c.next(orderStep, Report{Order: adopt.ID, Done: 1}); next.Index != 1 {
		t.Errorf("it goes on with step %d", next.Index)
	}
}

func TestWhoWasNotReadyGoesOnFromTheStepBefore(t *testing.T) {
	r := newRig(t)
	c, step := r.train()
	r.abandon(c.member)
	c.line()
	answer := make(chan Order)
	go func() { answer <- c.next(orderAdopt, Report{Order: step.ID}) }()
	if consent := await[events.Consent](r, events.Consented); len(consent.Holdings[0].Steps) != 1 {
		t.Errorf("it says that it holds %+v: expected step 0", consent.Holdings)
	}
	r.commit(0, c.member)
	adopt := <-answer
	if next := c.next(orderStep, Report{Order: adopt.ID}); next.Index != 0 || next.Generation != 2 {
		t.Errorf("it goes on with %+v", next.Training)
	}
}

func TestTheAgentAnswersForATrainerInALongStep(t *testing.T) {
	for name, test := range map[string]struct {
		ready uint64
		steps int
	}{"before its sums are complete": {0, 1}, "ready": {1, 2}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c, _ := r.train()
			c.setWord(wordReady, test.ready)
			c.setWord(wordPhase, phaseInStep)
			r.abandon(c.member)
			if consent := await[events.Consent](r, events.Consented); len(consent.Holdings[0].Steps) != test.steps {
				t.Errorf("it says that it holds %+v: expected %d steps", consent.Holdings, test.steps)
			}
		})
	}
}

func TestABrokenStepIsTold(t *testing.T) {
	r := newRig(t)
	c, _ := r.train()
	c.start(t.Context(), "POST", "/v1/next", `{"order":2,"broken":"connection reset by peer"}`)
	broken := await[events.BrokenStep](r, events.StepBroken)
	if broken.Node != "n1" || broken.Reason != "connection reset by peer" || broken.Step != 0 {
		t.Errorf("it says %+v", broken)
	}
}

func TestATrainerThatDiesInTheMiddleOfACallIsToldAsGone(t *testing.T) {
	for name, in := range map[string]func(ctx context.Context, c *client){
		"between calls": func(context.Context, *client) {},
		"next":          func(ctx context.Context, c *client) { c.start(ctx, "POST", "/v1/next", `{"order":2,"done":1}`) },
		"a wait for a value": func(ctx context.Context, c *client) {
			c.start(ctx, "GET", "/v1/store/1/key?wait=60", "")
		},
		"half a body": func(ctx context.Context, c *client) { c.start(ctx, "POST", "/v1/next", `{"order":`) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c, _ := r.train()
			ctx, die := context.WithCancel(t.Context())
			in(ctx, c)
			die()
			c.stream.Close() // as the kernel does
			exited := await[events.Exit](r, events.NodeExited)
			if exited.Node != "n1" || exited.Incarnation != c.member.Incarnation {
				t.Errorf("it says %+v", exited)
			}
			r.join(usualJoin) // another process takes its place
		})
	}
}

// start begins a call that ends with ctx.
func (c *client) start(ctx context.Context, method, path, body string) {
	c.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+c.path(path), strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	go func() {
		if response, err := c.http.Do(request); err == nil {
			response.Body.Close()
		}
	}()
}

func TestATrainerThatDiesWhileItJoinsLeavesNothing(t *testing.T) {
	r := newRig(t)
	ctx, die := context.WithCancel(t.Context())
	c := &client{rig: r, http: r.dial()}
	c.start(ctx, "POST", "/v1/join", usualJoin)
	await[events.Join](r, events.JoinRequested)
	die()
	for exited := false; !exited; { // it may have died before it was a member, or after it was told its session
		select {
		case event := <-r.said:
			exited = event.Kind == events.NodeExited
		case <-time.After(10 * time.Millisecond): // it may never have been said
			exited = r.server.Trainers() == 0
		}
	}
}

func TestAProcessMayJoinForAnotherAndOneThatEndedMeanwhileMakesWay(t *testing.T) {
	r := newRig(t)
	join := func() []byte {
		curl := exec.Command("curl", "--silent", "--unix-socket", r.socket, "http://agent/v1/join", "-d", usualJoin)
		answer, err := curl.Output()
		if err != nil {
			t.Skip("curl: ", err)
		}
		return answer
	}
	join()
	await[events.Join](r, events.JoinRequested)
	c := r.open(r.dial(), join())
	time.Sleep(2 * lookEvery) // nothing happens, which has no event
	r.commit(0, c.member)
	c.next(orderAdopt, Report{})
}

func TestAProcessThatIsStoppedIsGivenUp(t *testing.T) {
	r := newRig(t)
	c, _ := r.train()
	process := exec.Command("sleep", "60")
	if err := process.Start(); err != nil {
		t.Skip(err)
	}
	defer process.Wait()
	defer process.Process.Kill()
	if processState(os.Getpid()) == 0 {
		t.Skip("the system does not tell of processes")
	}
	answer := make(chan failure, 1)
	go func() {
		var failed failure
		c.expect(http.StatusNotFound, &failed, "POST", "/v1/next", `{"order":2,"done":0,"broken":"a collective"}`)
		answer <- failed
	}()
	await[events.BrokenStep](r, events.StepBroken) // it waits
	go r.server.trainer(c.session).attend(process.Process.Pid)
	if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if exited := await[events.Exit](r, events.NodeExited); !strings.Contains(exited.Reason, "stopped") ||
		exited.WaitedSeconds < mostStopped.Seconds() {
		t.Errorf("it says %+v: expected that it was stopped, and for how long by then", exited)
	}
	if failed := <-answer; !strings.Contains(failed.What, "stopped") || !strings.Contains(failed.Fix, "join") {
		t.Errorf("its call is answered with %+v: expected why, and that it is to join", failed)
	}
}

func TestWhoAskedToLeaveIsTrainedWithUntilAPlanDoesWithout(t *testing.T) {
	r := newRig(t)
	c, step := r.train()
	r.server.Leave("maintenance", time.Minute)
	if leave := await[events.Leave](r, events.LeaveRequested); leave.Reason != "maintenance" {
		t.Errorf("it says %+v", leave)
	}
	step = c.next(orderStep, Report{Order: step.ID, Done: 1})
	other := events.Member{Node: "n2", Incarnation: "a", Address: "127.0.0.1:1"}
	opening := events.Opening{
		Negotiation: "leaving", Generation: 2, Members: []events.Member{c.member, other},
		Changes: []events.Change{{Kind: events.ChangeLeave, Node: "n1"}},
	}
	if _, err := r.bus.Publish(t.Context(),
		r.speaker.First(time.Now(), "test", events.NegotiationOpened, "leaving", &opening)); err != nil {
		t.Fatal(err)
	}
	await[events.Consent](r, events.Consented)
	preparation := events.Preparation{Negotiation: "leaving", Generation: 2}
	if _, err := r.bus.Publish(t.Context(),
		r.speaker.First(time.Now(), "test", events.Prepared, "leaving", &preparation)); err != nil {
		t.Fatal(err)
	}
	stop := await[events.Promise](r, events.Promised).StopStep
	r.commit(stop, other)
	for done := step.Index + 1; done < stop; done++ {
		step = c.next(orderStep, Report{Order: step.ID, Done: done})
	}
	c.next(orderLeft, Report{Order: step.ID, Done: stop})
}

func TestHeartbeatsTellWhetherATrainerComputesOrWaitsForOthers(t *testing.T) {
	r := newRig(t)
	c, step := r.train()
	pulses := make(chan *nats.Msg, 1024)
	subscription, err := r.bus.Conn().ChanSubscribe(events.PulseSubject("c", "n1"), pulses)
	if err != nil {
		t.Fatal(err)
	}
	defer subscription.Unsubscribe()
	for word, phase := range []string{events.PhaseBetween, events.PhaseComputing, events.PhaseWaiting, ""} {
		c.setWord(wordWork, uint64(word))
		r.awaitPhase(pulses, phase)
	}
	c.setWord(wordWork, 1)
	r.awaitPhase(pulses, events.PhaseComputing)
	r.abandon(c.member)
	c.start(t.Context(), "POST", "/v1/next", `{"order":`+itoa(step.ID)+`}`)
	r.awaitPhase(pulses, "") // it is in no step any more
}

// awaitPhase waits for a heartbeat that tells a phase.
func (r *rig) awaitPhase(pulses <-chan *nats.Msg, phase string) {
	r.Helper()
	for deadline := time.After(patience); ; {
		select {
		case message := <-pulses:
			var pulse events.Pulse
			if err := json.Unmarshal(message.Data, &pulse); err != nil {
				r.Fatal(err)
			}
			if pulse.Between {
				pulse.Phase += events.PhaseBetween // and not both
			}
			if pulse.Phase == phase {
				return
			}
		case <-deadline:
			r.Fatalf("no heartbeat tells the phase %q", phase)
		}
	}
}

// It evaluates, say. The others have what it has.
func TestWhoDoesSomethingElseBehindAStepThatItMadeIsNotWaitedForAndClaimsThatStepOnceItIsBack(t *testing.T) {
	r := newRig(t)
	c, step := r.train()
	c.setWord(wordPhase, phaseApplying)
	c.setWord(wordCompleted, 1)
	c.setWord(wordReady, 1)
	r.abandon(c.member, other)
	exit := await[events.Exit](r, events.NodeExited)
	if !exit.Hangs || !exit.Keeps || !strings.Contains(exit.Reason, "has made step 1") {
		t.Errorf("it says %+v: expected that its script lives and has made a step", exit)
	}
	r.commit(1, other)
	c.setWord(wordPhase, 0)
	c.start(t.Context(), "POST", "/v1/next", fmt.Sprintf(`{"order":%d,"done":1}`, step.ID))
	again := await[events.Join](r, events.JoinRequested)
	c.member.Incarnation = again.Incarnation
	r.abandon(c.member, other)
	if consent := await[events.Consent](r, events.Consented); len(consent.Claims) != 2 || consent.Claims[0].Step != 1 {
		t.Errorf("it claims %+v: expected both units at step 1", consent.Claims)
	}
}
